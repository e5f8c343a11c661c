"""The topic-aware DHT as state machines that do no I/O (Baehni, Guerraoui, Handurukande, Jurca,
Koldehofe 2004; the decisions are in `rules/roles.py`, `rules/treecast.py`, `rules/treecast.py`).

From below: `space` says where a peer lies in a topic, `state` is what a peer remembers of one
topic, `routing` finds forwarders, `changing` makes this peer a forwarder or stops it being one,
`choosing` says which role to take, `serving` answers others' operations, `operating` initiates this
peer's own, `stabilising` is Algorithm 1, `sampling` random routing and Algorithm 2, `topic_dht`
composes. On top of these lies how events spread: `membership` is what a subscriber remembers of
them, `linking` keeps the links, `casting` passes events on by the four schemes, `mending` makes up
for what got lost, `beginning` starts subscriptions, and `routed` is all of it as the routing of a
peer.

Invariants, once no operation is under way and no message is lost (Lemma 4.2): a peer is forwarder
or child of a topic if and only if it is subscribed; every child is at its closest forwarder; no
forwarder has more than k children.
"""
