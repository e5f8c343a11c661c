"""Pulsarcast's multicast trees as a routing of events (paper 004, Section 4).

`branch.py` is what a peer knows of one tree, `joining.py` how it gets in and back in,
`hosting.py` who takes it, `rendezvous.py` the roots, `family.py` what members tell each other,
`spreading.py` the events and their repair, `finding.py` how others find the tree; `pulsar.py`
composes them.
"""
