"""What a peer says to messages about topics it is not subscribed to, or that it routes otherwise:
it is not a member, so that the sender stops."""

from __future__ import annotations

from typing import Any

from weft.ids import GENERAL, Contact
from weft.protocol import messages as m
from weft.protocol import messages_stan as ms
from weft.protocol.context import Context
from weft.protocol.records import REJECT_MESSAGE, message_id
from weft.protocol.routing import Handlers


class Refusing:
    """Refuses, kindly."""

    def __init__(self, ctx: Context) -> None:
        self._ctx = ctx

    def refuse(self, sender: Contact, message: Any) -> None:
        """Any message about a topic."""
        ctx = self._ctx
        ctx.counters["not_subscribed"] += 1
        if isinstance(message, m.Payload):
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
            ctx.send(sender, m.LeaveNotice(message.topic))

    def exchange(self, sender: Contact, message: m.ShuffleRequest) -> None:
        self._ctx.counters["not_subscribed"] += 1
        reply = m.ShuffleReply(message.topic, message.tick, [], m.NO_NEWS, False)
        self._ctx.send(sender, reply)

    def join(self, sender: Contact, message: m.JoinRequest) -> None:
        self._ctx.counters["not_subscribed"] += 1
        self._ctx.send(sender, m.JoinReply(message.topic, False))

    def walk(self, sender: Contact, message: m.LookupWalk) -> None:
        if message.origin.peer != self._ctx.me.peer:
            self._ctx.send(message.origin, m.LookupMiss(message.lookup))

    def event(self, sender: Contact, message: m.RouteEvent) -> None:
        self._ctx.counters["routed_received"] += 1
        event = message.event
        result = m.RouteResult(message.topic, event.incarnation, event.number, False)
        self._ctx.send(sender, result)

    def links(self, sender: Contact, message: m.LinkList) -> None:
        for topic in message.topics:
            if topic != GENERAL:
                self._ctx.send(sender, m.LeaveNotice(topic))


def refusals(ctx: Context) -> Handlers:
    """What a peer says to TERA's messages that routes otherwise itself."""
    refusing = Refusing(ctx)
    nothing = (
        *(m.ShuffleReply, m.JoinReply, m.LeaveNotice),
        *(m.Advertisement, m.TableCopy, m.LookupHit, m.LookupMiss),
    )
    about_topics = (
        *(m.Payload, m.Again, m.JoinWalk, m.JoinGift, m.Hint, m.SampleWalk, m.SampleReply),
        *(m.LinkRequest, m.LinkReply, m.Unlink, m.IHave, m.Graft, m.Prune),
        *(m.Offer, m.Want, m.Repair),
        *(ms.CollectWalk, ms.CollectReply, ms.AdoptMe, ms.LinkRelease, ms.InLink),
    )
    return {
        **dict.fromkeys(nothing, _ignore),
        **dict.fromkeys(about_topics, refusing.refuse),
        m.ShuffleRequest: refusing.exchange,
        m.JoinRequest: refusing.join,
        m.LookupWalk: refusing.walk,
        m.RouteEvent: refusing.event,
        m.LinkList: refusing.links,
    }


def _ignore(sender: Contact, message: Any) -> None:
    """Answers to what this peer never asked, and news it has no use for."""
