"""A real swarm on one machine, and what it shows: processes, checks, figures, a report.

`worker` hosts some peers in one process, `swarm` starts and steers workers, `show` runs the
demonstration, `verdict` compares what arrived with what should have, `traffic` reads the traces,
`summary` puts the figures together, and `report` draws them with `svg`.
"""
