"""The experiments on Pulsarcast: the real state machines in virtual time, and some real peers.

`world.py` is a network of peers with one topic. Each of the other files is the simulation of one
experiment of the same name in `weft/lab/experiments`; `peers.py` is what runs on real sockets.
"""
