"""The laboratory: the papers' claims as experiments, run on Spark, judged, drawn, reported.

`experiment` says what an experiment is, `experiments` has one file for each, `measures` and
`figures` are what they declare numbers and draw with. `run` finds them and plans, `task` is one
point with one seed, `execute` runs tasks on Spark, `verdict` compares with the claim, `report` puts
the page together. `processes` is the swarm of real peers.
"""
