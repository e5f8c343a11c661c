"""What a peer says to messages about topics it is not subscribed to, or that it routes otherwise:
it is not a member, so that the sender stops."""

from __future__ import annotations

from typing import Any

from weft.ids import GENERAL, Contact
from weft.protocol import messages_stan as ms
from weft.protocol.context import Context
from weft.protocol.cyclon import (
    NO_NEWS,
    JoinGift,
    JoinReply,
    JoinRequest,
    JoinWalk,
    LeaveNotice,
    ShuffleReply,
    ShuffleRequest,
)
from weft.protocol.publishing import RouteEvent, RouteResult
from weft.protocol.recent import Offer, Repair, Want
from weft.protocol.records import REJECT_MESSAGE, message_id
from weft.protocol.routing import Handlers
from weft.protocol.tera.access_points import Advertisement, Hint, TableCopy
from weft.protocol.tera.links import LinkList, LinkRelease, LinkReply, LinkRequest, Unlink
from weft.protocol.tera.lookup import LookupHit, LookupMiss, LookupWalk
from weft.protocol.tera.size import SampleReply, SampleWalk
from weft.protocol.tera.tree import Graft, IHave, Prune
from weft.protocol.twins import Again
from weft.protocol.wire import Payload


class Refusing:
    """Refuses, kindly."""

    def __init__(self, ctx: Context) -> None:
        self._ctx = ctx

    def refuse(self, sender: Contact, message: Any) -> None:
        """Any message about a topic."""
        ctx = self._ctx
        ctx.counters["not_subscribed"] += 1
        if isinstance(message, Payload):
            ctx.counters["parasites"] += 1
            if ctx.tracing:
                fields = {
                    "messageID": message_id(message.topic, message.event),
                    "receivedFrom": ctx.name(sender.peer),
                    "reason": "not subscribed",
                    "topic": message.topic,
                }
                ctx.trace(REJECT_MESSAGE, fields)
        if message.topic != GENERAL:  # of which LeaveNotice would mean leaving the network
            ctx.send(sender, LeaveNotice(message.topic))

    def exchange(self, sender: Contact, message: ShuffleRequest) -> None:
        self._ctx.counters["not_subscribed"] += 1
        reply = ShuffleReply(message.topic, message.tick, [], NO_NEWS, False)
        self._ctx.send(sender, reply)

    def join(self, sender: Contact, message: JoinRequest) -> None:
        self._ctx.counters["not_subscribed"] += 1
        self._ctx.send(sender, JoinReply(message.topic, False))

    def walk(self, sender: Contact, message: LookupWalk) -> None:
        if message.origin.peer != self._ctx.me.peer:
            self._ctx.send(message.origin, LookupMiss(message.lookup))

    def event(self, sender: Contact, message: RouteEvent) -> None:
        self._ctx.counters["routed_received"] += 1
        event = message.event
        result = RouteResult(message.topic, event.incarnation, event.number, False)
        self._ctx.send(sender, result)

    def links(self, sender: Contact, message: LinkList) -> None:
        for topic in message.topics:
            if topic != GENERAL:
                self._ctx.send(sender, LeaveNotice(topic))


def refusals(ctx: Context) -> Handlers:
    """What a peer says to TERA's messages that routes otherwise itself."""
    refusing = Refusing(ctx)
    nothing = (
        *(ShuffleReply, JoinReply, LeaveNotice),
        *(Advertisement, TableCopy, LookupHit, LookupMiss),
    )
    about_topics = (
        *(Payload, Again, JoinWalk, JoinGift, Hint, SampleWalk, SampleReply),
        *(LinkRequest, LinkReply, Unlink, IHave, Graft, Prune),
        *(Offer, Want, Repair),
        *(ms.CollectWalk, ms.CollectReply, ms.AdoptMe, LinkRelease, ms.InLink),
    )
    return {
        **dict.fromkeys(nothing, _ignore),
        **dict.fromkeys(about_topics, refusing.refuse),
        ShuffleRequest: refusing.exchange,
        JoinRequest: refusing.join,
        LookupWalk: refusing.walk,
        RouteEvent: refusing.event,
        LinkList: refusing.links,
    }


def _ignore(sender: Contact, message: Any) -> None:
    """Answers to what this peer never asked, and news it has no use for."""
