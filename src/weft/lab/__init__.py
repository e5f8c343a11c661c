"""The laboratory: the papers' claims as experiments, run on Spark, judged, drawn, reported.

`experiment` says what an experiment is, `experiments` has one file for each, `registry` finds them.
`run` plans, `task` is one point with one seed, `execute` runs tasks on Spark, `verdict` compares
with the claim, `figures` draws, `report` puts the page together. `processes` is the swarm of real
peers.
"""
