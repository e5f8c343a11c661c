"""The laboratory: the papers' claims as experiments, run on Spark, judged, drawn, reported.

`registry` knows the entries (one file each in `experiments`), `task` is what a worker does,
`run` plans and executes, `verdict` compares with the claim, `figures` draws, `report` puts the
page together.
"""
