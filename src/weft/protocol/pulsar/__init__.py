"""Pulsarcast's multicast trees as a routing of events (paper 004, Section 4).

From below: `branch` is what a peer knows of one tree, what members tell each other, and how events
spread and are repaired (`Events`); `attachment` is how a peer gets in and back in and takes others,
with the rendezvous and the way to them (`Roots`); `pulsar` composes.
"""
