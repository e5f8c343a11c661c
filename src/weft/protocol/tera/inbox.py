"""Where TERA's messages go: each kind to the layer it belongs to.

Messages about a topic this peer is not subscribed to are refused in a way that makes the sender
stop: it learns that this peer is not a member (`refusing.py`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

from weft.ids import GENERAL, Contact, OverlayId, Topic
from weft.protocol import messages_stan as ms
from weft.protocol.context import Context, SubscriptionsChanged
from weft.protocol.cyclon import (
    JoinGift,
    JoinReply,
    JoinRequest,
    JoinWalk,
    LeaveNotice,
    ShuffleReply,
    ShuffleRequest,
)
from weft.protocol.liveness import Liveness
from weft.protocol.publishing import RouteEvent, RouteResult
from weft.protocol.recent import Offer, Repair, Want
from weft.protocol.routing import Handlers
from weft.protocol.tera import tree
from weft.protocol.tera.access_points import AccessPoints, Advertisement, Hint, TableCopy
from weft.protocol.tera.links import LinkList, LinkRelease, LinkReply, LinkRequest, Unlink
from weft.protocol.tera.lookup import Lookup, LookupHit, LookupMiss, LookupWalk
from weft.protocol.tera.refusing import Refusing
from weft.protocol.tera.size import SampleReply, SampleWalk
from weft.protocol.tera.subscribing import Subscribing
from weft.protocol.tera.topic import TopicState
from weft.protocol.tera.tree import Graft, IHave, Prune
from weft.protocol.twins import Again
from weft.protocol.wire import LIST_MAX, Event, Payload, Span

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
            Payload: self._on_payload,
            ShuffleRequest: self._on_shuffle_request,
            ShuffleReply: self._on_shuffle_reply,
            JoinRequest: self._on_join_request,
            JoinReply: self._on_join_reply,
            LeaveNotice: self._on_leave_notice,
            Advertisement: self._on_advertisement,
            TableCopy: lambda sender, message: table.on_copy(message),
            LookupWalk: self._on_lookup_walk,
            LookupHit: lambda sender, message: lookup.on_hit(message),
            LookupMiss: lambda sender, message: lookup.on_miss(message),
            RouteEvent: self._on_route_event,
            Again: self._on_again,
            LinkList: self._on_link_list,
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

    def _on_payload(self, sender: Contact, message: Payload) -> None:
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

    def _on_route_event(self, sender: Contact, message: RouteEvent) -> None:
        state = self._topics.get(message.topic)
        event = message.event
        self._ctx.counters["routed_received"] += 1
        found = self._ctx.twins.resolve_routed(message.topic, event) if message.again else event
        if state is not None and found is not None:
            waiting = [] if message.again else self._note_twins(sender, found)
            state.accept(found, 1, sender if self._ctx.open_event is not None else None)
            for other, again in waiting:
                self._on_again(other, again)
        # With history an event may be refused, by whoever it is asked to spread it.
        taken = state is not None and found is not None and state.recent.has_seen(found)
        result = RouteResult(message.topic, event.incarnation, event.number, taken)
        self._ctx.send(sender, result)

    def _note_twins(self, sender: Contact, event: Event) -> list[tuple[Contact, Again]]:
        """What waited for the payload of an event of several topics."""
        return self._ctx.twins.arrived(event, sender.peer) if event.parts else []

    def _on_again(self, sender: Contact, message: Again) -> None:
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
        span = Span(message.publisher, message.incarnation, message.number, message.number)
        _ON_TOPIC_MESSAGE[IHave](state, sender, IHave(message.topic, [span]))

    # --- topic overlays -------------------------------------------------------------------------

    def _on_shuffle_request(self, sender: Contact, message: ShuffleRequest) -> None:
        state = self._topics.get(message.topic)
        if state is None:
            self._refusing.exchange(sender, message)
        else:
            state.on_shuffle_request(sender, message)

    def _on_shuffle_reply(self, sender: Contact, message: ShuffleReply) -> None:
        state = self._topics.get(message.topic)
        if state is None:
            return
        if message.member:
            state.on_shuffle_reply(sender, message)
        else:
            state.lose(sender.peer, left=True)

    def _on_join_request(self, sender: Contact, message: JoinRequest) -> None:
        state = self._topics.get(message.topic)
        if state is None:
            self._refusing.join(sender, message)
        else:
            state.view.on_join_request(sender, state.news(), state.recent.seen())
            state.maintain_links()

    def _on_join_reply(self, sender: Contact, message: JoinReply) -> None:
        self._subscribing.on_join_reply(sender, message)
        self._ctx.tell(SubscriptionsChanged())

    def _on_leave_notice(self, sender: Contact, message: LeaveNotice) -> None:
        self._table.forget_entry(message.topic, sender.peer)
        state = self._topics.get(message.topic)
        if state is not None:
            state.lose(sender.peer, left=True)

    # --- access points --------------------------------------------------------------------------

    def _on_advertisement(self, sender: Contact, message: Advertisement) -> None:
        for advert in message.adverts:
            self._table.on_advert(sender, advert)
            state = self._topics.get(advert.topic)
            if state is not None:
                state.on_advert(sender, OverlayId(advert.overlay))

    def _on_lookup_walk(self, sender: Contact, message: LookupWalk) -> None:
        self._lookup.on_walk(message, message.topic in self._topics)

    # --- links ----------------------------------------------------------------------------------

    def _on_link_list(self, sender: Contact, message: LinkList) -> None:
        """Settle which links both ends believe in (see `protocol/liveness.py`)."""
        mine = self._liveness.topics_with(sender.peer)
        theirs = set(message.topics)
        for topic in message.topics:
            state = self._topics.get(topic)
            if state is not None:
                state.links.adopt(sender)
            elif topic != GENERAL:
                self._ctx.send(sender, LeaveNotice(topic))
        if len(message.topics) < LIST_MAX:
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
    JoinWalk: lambda state, sender, message: state.view.on_join_walk(message),
    JoinGift: lambda state, sender, message: state.view.on_join_gift(message),
    Hint: TopicState.on_hint,
    SampleWalk: lambda state, sender, message: state.size.on_walk(message),
    SampleReply: lambda state, sender, message: state.size.on_sample(sender, message),
    LinkRequest: lambda state, sender, message: state.links.on_request(
        sender, message, state.recent.fingerprint()
    ),
    LinkReply: TopicState.on_link_reply,
    Unlink: lambda state, sender, message: state.links.on_unlink(sender),
    IHave: _over_link(tree.Tree.on_ihave, TopicState.on_ihave),
    Graft: _over_link(tree.Tree.on_graft, TopicState.on_want),
    Prune: _over_link(lambda state, sender, message: state.on_prune(sender)),
    ms.CollectWalk: lambda state, sender, message: state.stan.on_walk(sender, message),
    ms.CollectReply: lambda state, sender, message: state.on_collect_reply(sender, message),
    ms.AdoptMe: lambda state, sender, message: state.stan.on_adopt_me(sender),
    ms.InLink: lambda state, sender, message: state.stan.on_in_link(sender, message),
    LinkRelease: lambda state, sender, message: state.on_link_release(sender),
    Offer: TopicState.on_offer,
    Want: TopicState.on_want,
    Repair: TopicState.on_repair,
}
