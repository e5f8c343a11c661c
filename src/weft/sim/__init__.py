"""The peer in virtual time: a deterministic world, faults drawn from a seed, and checkers.

`world` drives the same state machines that run on a real network; `network` decides when messages
arrive; `builder` makes networks of peers; `faults` and `workload` draw what happens in a run;
`record` keeps what an observer saw and `checkers` judge it, without knowing how the machines work
inside; `scenario` ties them together, and `topic_dht` is a network of that layer alone.
"""
