"""Where messages of other peers go: those about the general overlay are handled here, all others
by the tables of the layers they belong to.

View exchanges and joins are spoken in the general overlay and, by some routings, in overlays of
topics; the topic in the message says which is meant.
"""

from __future__ import annotations

from weft.ids import GENERAL, Contact
from weft.protocol.context import Context, NeighboursFound, PeerGone
from weft.protocol.cyclon import (
    NO_NEWS,
    Cyclon,
    JoinGift,
    JoinReply,
    JoinRequest,
    JoinWalk,
    LeaveNotice,
    ShuffleReply,
    ShuffleRequest,
)
from weft.protocol.liveness import Liveness, Ping, Pong
from weft.protocol.routing import Handlers, Routing
from weft.protocol.seam import Received


class Inbox:
    """Hands each received message to its layer."""

    def __init__(
        self,
        ctx: Context,
        general: Cyclon,
        liveness: Liveness,
        routing: Routing,
        handlers: Handlers,
    ) -> None:
        self._ctx = ctx
        self._general = general
        self._liveness = liveness
        self._routing = routing
        self._handlers: Handlers = {
            **handlers,
            Ping: liveness.on_ping,
            Pong: liveness.on_pong,
        }
        self._in_general: Handlers = {
            ShuffleRequest: self._on_shuffle_request,
            ShuffleReply: self._on_shuffle_reply,
            JoinRequest: self._on_join_request,
            JoinReply: self._on_join_reply,
            JoinWalk: lambda sender, message: general.on_join_walk(message),
            JoinGift: lambda sender, message: general.on_join_gift(message),
            LeaveNotice: lambda sender, message: ctx.tell(PeerGone(sender.peer)),
        }

    def on_received(self, fact: Received) -> None:
        sender, message = fact.sender, fact.message
        kind = type(message)
        self._liveness.heard_from(sender.peer)
        if sender.peer == self._ctx.me.peer:
            return
        if kind in self._in_general and message.topic == GENERAL:  # type: ignore[attr-defined]
            was_isolated = self._general.knows_nobody
            self._in_general[kind](sender, message)
            if was_isolated and not self._general.knows_nobody:
                self._ctx.tell(NeighboursFound())
        else:
            self._handlers[kind](sender, message)

    def _on_shuffle_request(self, sender: Contact, message: ShuffleRequest) -> None:
        self._general.on_request(sender, message, NO_NEWS)
        self._routing.on_sample(message.topics_sample)

    def _on_shuffle_reply(self, sender: Contact, message: ShuffleReply) -> None:
        self._general.on_reply(sender, message)

    def _on_join_request(self, sender: Contact, message: JoinRequest) -> None:
        self._general.on_join_request(sender, NO_NEWS, [])
        self._routing.welcome(sender)

    def _on_join_reply(self, sender: Contact, message: JoinReply) -> None:
        self._general.on_join_reply(message)
        self._general.add(sender)
