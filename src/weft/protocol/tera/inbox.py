"""Where TERA's messages go: each kind to the layer it belongs to.

Messages about a topic this peer is not subscribed to are refused in a way that makes the sender
stop: it learns that this peer is not a member (`refusing.py`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

from weft.ids import GENERAL, Contact, OverlayId, Topic
from weft.protocol import messages as m
from weft.protocol import messages_stan as ms
from weft.protocol.context import Context, SubscriptionsChanged
from weft.protocol.liveness import Liveness
from weft.protocol.routing import Handlers
from weft.protocol.tera import tree
from weft.protocol.tera.access_points import AccessPoints
from weft.protocol.tera.lookup import Lookup
from weft.protocol.tera.refusing import Refusing
from weft.protocol.tera.subscribing import Subscribing
from weft.protocol.tera.topic import TopicState

TopicHandler: TypeAlias = Callable[[TopicState, Contact, Any], None]


class Inbox:
    """Hands each message to its layer."""

    def __init__(
        self,
        ctx: Context,
        topics: dict[Topic, TopicState],
        table: AccessPoints,
        liveness: Liveness,
        lookup: Lookup,
        subscribing: Subscribing,
    ) -> None:
        self._ctx = ctx
        self._topics = topics
        self._table = table
        self._liveness = liveness
        self._lookup = lookup
        self._subscribing = subscribing
        self._refusing = Refusing(ctx)

    def handlers(self) -> Handlers:
        table, lookup = self._table, self._lookup
        in_topics: Handlers = {
            kind: self._in_topic(handle) for kind, handle in _ON_TOPIC_MESSAGE.items()
        }
        return {
            **in_topics,
            m.Payload: self._on_payload,
            m.ShuffleRequest: self._on_shuffle_request,
            m.ShuffleReply: self._on_shuffle_reply,
            m.JoinRequest: self._on_join_request,
            m.JoinReply: self._on_join_reply,
            m.LeaveNotice: self._on_leave_notice,
            m.Advertisement: self._on_advertisement,
            m.TableCopy: lambda sender, message: table.on_copy(message),
            m.LookupWalk: self._on_lookup_walk,
            m.LookupHit: lambda sender, message: lookup.on_hit(message),
            m.LookupMiss: lambda sender, message: lookup.on_miss(message),
            m.RouteEvent: self._on_route_event,
            m.Again: self._on_again,
            m.LinkList: self._on_link_list,
        }

    def _in_topic(self, handle: TopicHandler) -> Callable[[Contact, Any], None]:
        """For a message to members only."""
        topics, refuse = self._topics, self._refusing.refuse

        def on_message(sender: Contact, message: Any) -> None:
            state = topics.get(message.topic)
            if state is not None:
                handle(state, sender, message)
            else:
                refuse(sender, message)

        return on_message

    # --- events ---------------------------------------------------------------------------------

    def _on_payload(self, sender: Contact, message: m.Payload) -> None:
        state = self._topics.get(message.topic)
        if state is None:
            self._refusing.refuse(sender, message)
            return
        if state.tree is not None and sender.peer not in state.links.linked:
            state.links.adopt(sender)
        waiting = self._note_twins(sender, message.event)
        state.on_payload(sender, message)
        for other, again in waiting:
            self._on_again(other, again)

    def _on_route_event(self, sender: Contact, message: m.RouteEvent) -> None:
        state = self._topics.get(message.topic)
        event = message.event
        self._ctx.counters["routed_received"] += 1
        found = self._ctx.twins.resolve_routed(message) if message.again else event
        if state is not None and found is not None:
            waiting = [] if message.again else self._note_twins(sender, found)
            state.accept(found, 1, sender if self._ctx.open_event is not None else None)
            for other, again in waiting:
                self._on_again(other, again)
        # With history an event may be refused, by whoever it is asked to spread it.
        taken = state is not None and found is not None and state.recent.has_seen(found)
        result = m.RouteResult(message.topic, event.incarnation, event.number, taken)
        self._ctx.send(sender, result)

    def _note_twins(self, sender: Contact, event: m.Event) -> list[tuple[Contact, m.Again]]:
        """What waited for the payload of an event of several topics."""
        return self._ctx.twins.arrived(event, sender.peer) if event.parts else []

    def _on_again(self, sender: Contact, message: m.Again) -> None:
        """An event that came in another of its topics is pushed in this one, too."""
        state = self._topics.get(message.topic)
        if state is None:
            self._refusing.refuse(sender, message)
            return
        self._ctx.counters["agains_received"] += 1
        if state.tree is not None and sender.peer not in state.links.linked:
            state.links.adopt(sender)
        event = self._ctx.twins.resolve(sender, message)
        if event is not None:
            state.on_pushed(sender, event, message.hops)
            return
        span = m.Span(message.publisher, message.incarnation, message.number, message.number)
        _ON_TOPIC_MESSAGE[m.IHave](state, sender, m.IHave(message.topic, [span]))

    # --- topic overlays -------------------------------------------------------------------------

    def _on_shuffle_request(self, sender: Contact, message: m.ShuffleRequest) -> None:
        state = self._topics.get(message.topic)
        if state is None:
            self._refusing.exchange(sender, message)
        else:
            state.on_shuffle_request(sender, message)

    def _on_shuffle_reply(self, sender: Contact, message: m.ShuffleReply) -> None:
        state = self._topics.get(message.topic)
        if state is None:
            return
        if message.member:
            state.on_shuffle_reply(sender, message)
        else:
            state.lose(sender.peer, left=True)

    def _on_join_request(self, sender: Contact, message: m.JoinRequest) -> None:
        state = self._topics.get(message.topic)
        if state is None:
            self._refusing.join(sender, message)
        else:
            state.view.on_join_request(sender, state.news(), state.recent.seen())
            state.maintain_links()

    def _on_join_reply(self, sender: Contact, message: m.JoinReply) -> None:
        self._subscribing.on_join_reply(sender, message)
        self._ctx.tell(SubscriptionsChanged())

    def _on_leave_notice(self, sender: Contact, message: m.LeaveNotice) -> None:
        self._table.forget_entry(message.topic, sender.peer)
        state = self._topics.get(message.topic)
        if state is not None:
            state.lose(sender.peer, left=True)

    # --- access points --------------------------------------------------------------------------

    def _on_advertisement(self, sender: Contact, message: m.Advertisement) -> None:
        for advert in message.adverts:
            self._table.on_advert(sender, advert)
            state = self._topics.get(advert.topic)
            if state is not None:
                state.on_advert(sender, OverlayId(advert.overlay))

    def _on_lookup_walk(self, sender: Contact, message: m.LookupWalk) -> None:
        self._lookup.on_walk(message, message.topic in self._topics)

    # --- links ----------------------------------------------------------------------------------

    def _on_link_list(self, sender: Contact, message: m.LinkList) -> None:
        """Settle which links both ends believe in (see `protocol/liveness.py`)."""
        mine = self._liveness.topics_with(sender.peer)
        theirs = set(message.topics)
        for topic in message.topics:
            state = self._topics.get(topic)
            if state is not None:
                state.links.adopt(sender)
            elif topic != GENERAL:
                self._ctx.send(sender, m.LeaveNotice(topic))
        if len(message.topics) < m.LIST_MAX:
            for topic in mine:
                if topic not in theirs:
                    self._topics[topic].links.lose(sender.peer)
        if message.first:
            self._liveness.send_list(sender, first=False)


def _over_link(
    handle: Callable[[Any, Contact, Any], None], without_tree: TopicHandler | None = None
) -> TopicHandler:
    """Tree messages travel over links: adopt or refuse the link first."""

    def on_message(state: TopicState, sender: Contact, message: Any) -> None:
        if state.tree is None:
            if without_tree is not None:
                without_tree(state, sender, message)
        elif state.links.adopt(sender):
            handle(state.tree, sender, message)

    return on_message


_ON_TOPIC_MESSAGE: dict[type, TopicHandler] = {
    m.JoinWalk: lambda state, sender, message: state.view.on_join_walk(message),
    m.JoinGift: lambda state, sender, message: state.view.on_join_gift(message),
    m.Hint: TopicState.on_hint,
    m.SampleWalk: lambda state, sender, message: state.size.on_walk(message),
    m.SampleReply: lambda state, sender, message: state.size.on_sample(sender, message),
    m.LinkRequest: lambda state, sender, message: state.links.on_request(
        sender, message, state.recent.fingerprint()
    ),
    m.LinkReply: TopicState.on_link_reply,
    m.Unlink: lambda state, sender, message: state.links.on_unlink(sender),
    m.IHave: _over_link(tree.Tree.on_ihave, TopicState.on_ihave),
    m.Graft: _over_link(tree.Tree.on_graft, TopicState.on_want),
    m.Prune: _over_link(lambda state, sender, message: state.on_prune(sender)),
    ms.CollectWalk: lambda state, sender, message: state.stan.on_walk(sender, message),
    ms.CollectReply: lambda state, sender, message: state.on_collect_reply(sender, message),
    ms.AdoptMe: lambda state, sender, message: state.stan.on_adopt_me(sender),
    ms.InLink: lambda state, sender, message: state.stan.on_in_link(sender, message),
    ms.LinkRelease: lambda state, sender, message: state.on_link_release(sender),
    m.Offer: TopicState.on_offer,
    m.Want: TopicState.on_want,
    m.Repair: TopicState.on_repair,
}
