"""The demonstration: a swarm of real peers on one machine, and what it shows.

`show` runs it on the lab's swarm of processes, `verdict` compares what arrived with what should
have, `traffic` reads the traces, `measured` lets the pipeline measure them, `output` is the folder
with the summary, `figures` draws, and `report` puts the page together.
"""
