"""Where the messages of multicast trees go."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from weft.ids import Contact
from weft.protocol import messages as m
from weft.protocol.context import Context
from weft.protocol.messages_pulsar import (
    RendezvousSync,
    TreeFamily,
    TreeJoin,
    TreeJoinReply,
    TreeLeave,
)
from weft.protocol.pulsar.pulsar import Pulsar


def handlers(ctx: Context, pulsar: Pulsar | None) -> dict[type, Callable[[Contact, Any], None]]:
    """Where the messages of trees go. A peer that routes otherwise says so."""
    if pulsar is None:

        def leave(sender: Contact, message: RendezvousSync | TreeFamily) -> None:
            ctx.send(sender, TreeLeave(message.topic))

        return {
            TreeJoin: lambda sender, join: ctx.send(sender, TreeJoinReply(join.topic, False)),
            TreeJoinReply: lambda sender, message: None,
            TreeFamily: leave,
            TreeLeave: lambda sender, message: None,
            RendezvousSync: leave,
        }
    return {
        TreeJoin: pulsar.on_join,
        TreeJoinReply: pulsar.joining.on_reply,
        TreeFamily: pulsar.on_family,
        TreeLeave: pulsar.on_leave,
        RendezvousSync: pulsar.on_sync,
        m.Payload: pulsar.spreading.on_payload,
        m.RouteEvent: pulsar.spreading.on_route_event,
        m.LinkList: pulsar.on_link_list,
    }
