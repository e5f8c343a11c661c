"""The peer in virtual time: a deterministic world, faults drawn from a seed, and checkers.

`world` drives the very state machines that run on a real network; `network` decides what becomes
of a message; `builder` makes networks of peers; `faults` and `workload` draw what happens in a run;
`record` keeps what was seen and `checkers` judge it, knowing nothing of how the machines work
inside; `scenario` ties them together, and `topic_dht` is a network of that layer alone.
"""
