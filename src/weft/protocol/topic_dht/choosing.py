"""Which role to take in topics that this peer wants (Section 4.2, subscription).

In each topic the closest forwarder is found and asked how loaded it is; from all these loads and
this peer's own follows whether to join there, to split or replace that forwarder, or, where there
is none, to be the first. What was chosen is carried out by `operating.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from weft.ids import Contact, Topic
from weft.protocol.kademlia.table import Entry
from weft.protocol.messages_topic_dht import ACCEPTED, LOOK, RoleReply, RoleRequest
from weft.protocol.topic_dht.routing import Routing
from weft.protocol.topic_dht.settings import Settings
from weft.protocol.topic_dht.state import Roles
from weft.protocol.topic_dht.talking import Talking, after_all
from weft.rules import roles as rules

Chosen = Callable[[dict[Topic, rules.Choice], dict[Topic, Contact]], None]
"""Is told the choices, and the closest forwarders; a topic without a choice was not understood."""


class Choosing:
    """See the module's text."""

    def __init__(
        self, roles: Roles, routing: Routing, talking: Talking, settings: Settings
    ) -> None:
        self._roles = roles
        self._routing = routing
        self._talking = talking
        self._settings = settings

    def choose(self, topics: Sequence[Topic], then: Chosen) -> None:
        loads: dict[Topic, rules.Load | None] = {}
        gates: dict[Topic, Contact] = {}
        heard = after_all(len(topics), lambda: then(self._choices(loads), gates))

        def found(topic: Topic, entries: list[Entry]) -> None:
            if not entries:
                loads[topic] = None
                heard()
                return
            closest = entries[0].contact
            gates[topic] = closest
            self._talking.ask(
                closest, lambda number: RoleRequest(number, topic, LOOK), partial(looked, topic)
            )

        def looked(topic: Topic, reply: RoleReply | None) -> None:
            if reply is not None and reply.verdict == ACCEPTED:
                loads[topic] = rules.Load(reply.locations, reply.topics, reply.children)
            heard()

        for topic in topics:
            self._routing.enter(topic, self._roles.own(topic), partial(found, topic))

    def _choices(self, loads: dict[Topic, rules.Load | None]) -> dict[Topic, rules.Choice]:
        if self._settings.everybody_forwards:
            return dict.fromkeys(loads, "forward")
        return rules.choose_roles(loads, self._roles.load())
