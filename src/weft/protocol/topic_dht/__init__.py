"""The topic-aware DHT as state machines that do no I/O (Baehni, Guerraoui, Handurukande, Jurca,
Koldehofe 2004; the decisions are in `rules/roles.py` and `rules/treecast.py`).

From below: `roles` is where a peer lies in a topic and what it is there, with the only writer of
it; `search` finds forwarders and speaks with them; `operations` makes this peer's own operations
(`Initiator`) and answers others' (`Responder`); `upkeep` is Algorithm 1 (`Stabilisation`), and
random routing with Algorithm 2 (`Samples`). On top of these, `events` spreads a topic's events and
repairs what got lost, and `topic_dht` is all of it as the routing of a peer.

Invariants, once no operation is under way and no message is lost (Lemma 4.2): a peer is forwarder
or child of a topic if and only if it is subscribed; every child is at its closest forwarder; no
forwarder has more than k children.
"""
