"""Kademlia as state machines that do no I/O (Maymounkov, Mazières 2002; Pulsarcast, Section 4.2).

From below: `table` holds the neighbours of one location, `calls` matches answers to requests,
`lookup` finds the closest peers to a target, `records` holds values and providers for others,
`kinds` says which values are valid, `operations` are what users ask for, `kademlia` composes.

A *space* (`space.py`) says how locations follow from a role and a peer. Tables and lookups know
nothing else of it, so a DHT in which a peer lies at many locations uses both as they are.
"""
