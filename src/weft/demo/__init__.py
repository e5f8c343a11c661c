"""The demonstration: a swarm of real peers on one machine, its check and its report.

`show` runs it on the lab's swarm of processes, `verdict` compares the notifications that arrived
with those that should have, `traffic` reads the traces, `measured` lets the pipeline measure them,
`output` is the folder with the summary, `figures` draws, and `report` puts the page together.
"""
