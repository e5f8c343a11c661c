"""What a peer says to messages of multicast trees that routes otherwise: it is in no tree."""

from __future__ import annotations

from weft.ids import Contact
from weft.protocol.context import Context
from weft.protocol.messages_pulsar import (
    RendezvousSync,
    TreeFamily,
    TreeJoin,
    TreeJoinReply,
    TreeLeave,
)
from weft.protocol.routing import Handlers


def refusals(ctx: Context) -> Handlers:
    def leave(sender: Contact, message: RendezvousSync | TreeFamily) -> None:
        ctx.send(sender, TreeLeave(message.topic))

    return {
        TreeJoin: lambda sender, join: ctx.send(sender, TreeJoinReply(join.topic, False)),
        TreeJoinReply: lambda sender, message: None,
        TreeFamily: leave,
        TreeLeave: lambda sender, message: None,
        RendezvousSync: leave,
    }
