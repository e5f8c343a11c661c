"""Pulsarcast's multicast trees as a routing of events (paper 004, Section 4).

From below: `branch` is what a peer knows of one tree and what members tell each other, `roots` are
the rendezvous and the way to them, `events` how events spread and are repaired, `attachment` how a
peer gets in and back in and takes others; `pulsar` composes.
"""
