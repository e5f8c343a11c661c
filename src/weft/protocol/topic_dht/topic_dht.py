"""The topic-aware DHT of one peer: what it has put together, and its timers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from weft.ids import GENERAL, Contact, PeerId, Topic
from weft.protocol import seam
from weft.protocol.context import Context
from weft.protocol.kademlia.kademlia import Kademlia
from weft.protocol.messages_topic_dht import (
    Appeared,
    Forget,
    Invite,
    IsChild,
    IsParent,
    Rejoin,
    RoleDone,
    RoleReply,
    RoleRequest,
    RouteParent,
    Vanished,
)
from weft.protocol.topic_dht.changing import Changing
from weft.protocol.topic_dht.operating import RETRY, Operating
from weft.protocol.topic_dht.routing import Routing
from weft.protocol.topic_dht.sampling import Drawn, Sampling
from weft.protocol.topic_dht.serving import Serving
from weft.protocol.topic_dht.settings import Settings
from weft.protocol.topic_dht.stabilising import Stabilising
from weft.protocol.topic_dht.state import Pace, Role, Roles
from weft.protocol.topic_dht.talking import Talking
from weft.rules.draw import below, stream_of

PERIOD = "topic_dht.period"
LOOK_AROUND = "topic_dht.look_around"
TIMERS = (RETRY, PERIOD, LOOK_AROUND)
_PHASE = stream_of("topic_dht.phase")
_ENTER_MS = 500
"""guess: between knowing the first neighbour and taking a place in the lobby."""

Handler = Callable[[Contact, Any], None]


class TopicDht:
    """See the package's text."""

    def __init__(self, ctx: Context, dht: Kademlia, settings: Settings | None = None) -> None:
        self._ctx = ctx
        self._dht = dht
        self.settings = settings or Settings()
        self.roles = Roles(ctx.me, dht)
        self.talking = Talking(ctx, dht.calls)
        self.routing = Routing(ctx, dht, self.roles)
        self.changing = Changing(ctx, dht, self.routing, self.talking)
        self.operating = Operating(
            ctx, self.roles, self.routing, self.talking, self.changing, self.settings
        )
        self.serving = Serving(
            ctx,
            dht,
            self.roles,
            self.talking,
            self.changing,
            self.settings,
            self.operating.settle_down,
            self.operating.give_way,
        )
        self.stabilising = Stabilising(
            ctx,
            self.roles,
            self.routing,
            self.talking,
            self.serving,
            self.operating,
            self.settings,
        )
        self.sampling = Sampling(
            ctx, self.roles, self.routing, self.talking, self.serving, self.settings
        )
        self._periods = 0
        self._lobby_pace = Pace()

    # --- for the peer -----------------------------------------------------------------------------

    def start(self) -> None:
        period = self.settings.period_ms
        phase = below(self._ctx.bits(_PHASE), period) + 1
        self._ctx.set_timer(phase, PERIOD, GENERAL)
        self._ctx.set_timer(below(self._ctx.bits(_PHASE), _ENTER_MS) + 1, LOOK_AROUND, GENERAL)

    def look_around(self) -> None:
        """There are (new) neighbours: be known to others, and meet other parts of one's topics."""
        self._lobby_pace = Pace()
        self.routing.announce(self.routing.lobby)
        for role in self.roles.by_topic.values():
            if role.forwarder is not None:
                role.pace = Pace()
                self.routing.announce(role.forwarder.place, again=True)

    def subscribe(self, topics: Sequence[Topic]) -> None:
        self.operating.subscribe(topics)

    def unsubscribe(self, topics: Sequence[Topic]) -> None:
        self.operating.unsubscribe(topics)

    def draw(self, topic: Topic, then: Drawn) -> None:
        """A random subscriber."""
        self.sampling.draw(topic, then)

    def on_peer_lost(self, peer: PeerId) -> None:
        """A child whose parent cannot be reached looks for another one at once."""
        for role in list(self.roles.by_topic.values()):
            child = role.child
            if child is not None and child.parent.peer == peer and not role.operation:
                child.updated = False
                self.stabilising.seek_parent(role, child)

    def status(self) -> dict[str, object]:
        load = self.roles.load()
        children = [
            len(role.forwarder.children)
            for role in self.roles.by_topic.values()
            if role.forwarder is not None
        ]
        return {
            "topics": load.topics,
            "locations": load.locations,
            "children": sum(children),
            "children_most": max(children, default=0),
        }

    # --- timers -----------------------------------------------------------------------------------

    def on_timer(self, timer: seam.Timer) -> None:
        if timer.kind == RETRY:
            self.operating.on_retry(timer.topic, timer.serial)
        elif timer.kind == PERIOD:
            self._ctx.set_timer(self.settings.period_ms, PERIOD, GENERAL)
            self._on_period()
        elif timer.kind == LOOK_AROUND:
            self.routing.announce(self.routing.lobby)

    def _on_period(self) -> None:
        self._periods += 1
        every = self.settings.refresh_periods
        for role in list(self.roles.by_topic.values()):
            self.stabilising.on_period(role)
            self.sampling.on_period(role)
            forwarder = role.forwarder
            if forwarder is not None and role.pace.is_due(
                self._periods, every, forwarder.fingerprint()
            ):
                self._refresh(role)
        if self._lobby_pace.is_due(self._periods, every, 1):
            self.routing.announce(self.routing.lobby, again=True)

    def _refresh(self, role: Role) -> None:
        """Keep the table of a forwarder in touch with the topic, and with what is around it."""
        if role.forwarder is not None:
            own = role.forwarder.place.table.own
            self.routing.find(role.topic, own, lambda entries: None, self._ctx.config.dht.k)
            self.routing.announce(role.forwarder.place, again=True)


def handlers(machine: TopicDht) -> dict[type, Handler]:
    """Where the messages go."""
    serving, operating = machine.serving, machine.operating
    stabilising = machine.stabilising
    return {
        RoleRequest: serving.on_request,
        RoleReply: machine.roles.dht.calls.on_reply,
        RoleDone: serving.on_done,
        Invite: operating.on_invite,
        Appeared: serving.on_appeared,
        Vanished: serving.on_vanished,
        Rejoin: operating.on_rejoin,
        Forget: serving.on_forget,
        RouteParent: stabilising.on_route_parent,
        IsParent: stabilising.on_is_parent,
        IsChild: stabilising.on_is_child,
    }
