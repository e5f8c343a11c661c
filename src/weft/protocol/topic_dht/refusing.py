"""What a peer says to messages of the topic-aware DHT that routes otherwise: it is in no topic."""

from __future__ import annotations

from typing import Any

from weft.ids import Contact
from weft.protocol import messages_topic_dht as t
from weft.protocol.context import Context
from weft.protocol.delivery import note_parasite
from weft.protocol.routing import Handlers


def refusals(ctx: Context) -> Handlers:
    def absent(sender: Contact, message: t.RoleRequest | t.Appeared | t.Rejoin) -> None:
        ctx.send(sender, t.RoleReply(message.request, t.ABSENT))

    def vanished(sender: Contact, message: Any) -> None:
        ctx.send(sender, t.Vanished(message.topic))

    def parasite(sender: Contact, message: t.Cast) -> None:
        ctx.counters["not_subscribed"] += 1
        note_parasite(ctx, message.topic, message.event, sender.peer)
        vanished(sender, message)

    def forget(sender: Contact, message: t.IsChild) -> None:
        ctx.send(sender, t.Forget(message.topic))

    ignored = (t.RoleReply, t.RoleDone, t.Invite, t.Vanished, t.Forget, t.IsParent, t.SeenReply)
    return {
        **dict.fromkeys(ignored, _ignore),
        **dict.fromkeys((t.RoleRequest, t.Appeared, t.Rejoin), absent),
        **dict.fromkeys((t.RouteParent, t.Beat), vanished),
        t.IsChild: forget,
        t.Cast: parasite,
        t.SeenRequest: lambda sender, one: ctx.send(sender, t.SeenReply(one.request, False)),
    }


def _ignore(sender: Contact, message: Any) -> None:
    """Answers to what this peer never asked, and news it has no use for."""
