"""Kademlia as state machines that do no I/O (Maymounkov, Mazières 2002; Pulsarcast, Section 4.2).

From below: `table` holds the neighbours of one location, `rpc` is what peers say to each other and
matches answers to requests, `lookup` finds the closest peers to a target, `records` holds
values and providers for others and carries out the commands of users, `kademlia` composes.
"""
