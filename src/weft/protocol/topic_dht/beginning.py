"""How a subscription begins: with a role, and with what was published before it.

A new subscriber does not want events of the past (history brings them to who does), so it asks its
parent or a forwarder near it what there has been. Only then it is subscribed and compares with
others; what reached it meanwhile has been delivered already.
"""

from __future__ import annotations

from collections.abc import Callable

from weft.ids import Contact
from weft.protocol.context import Context
from weft.protocol.kademlia.rpc import Calls
from weft.protocol.messages_topic_dht import SeenReply, SeenRequest
from weft.protocol.topic_dht.linking import sound
from weft.protocol.topic_dht.membership import Membership
from weft.protocol.topic_dht.state import Roles

_ASKED_MAX = 3
"""guess: members asked in turn what there has been."""

Begun = Callable[[Membership, Contact | None], None]
"""Told of the member that answered; None: there seems to be nobody."""


class Beginning:
    """See the module's text."""

    def __init__(self, ctx: Context, roles: Roles, calls: Calls, begun: Begun) -> None:
        self._ctx = ctx
        self._roles = roles
        self._calls = calls
        self._begun = begun

    def begin(self, member: Membership) -> None:
        """There is a role now."""
        self._ask(member, self._candidates(member))

    def _candidates(self, member: Membership) -> list[Contact]:
        role = self._roles.by_topic.get(member.topic)
        if role is not None and role.child is not None:
            return role.child.known()[:_ASKED_MAX]
        if role is None or role.forwarder is None:
            return []
        own = role.forwarder.place.table.own
        near = sorted(sound(role.forwarder), key=lambda entry: entry.key ^ own)
        return [entry.contact for entry in near[:_ASKED_MAX]]

    def _ask(self, member: Membership, candidates: list[Contact]) -> None:
        if not candidates:
            self._begun(member, None)
            return
        first, *others = candidates

        def answered(reply: SeenReply | None) -> None:
            if not member.entering:
                return
            if reply is None or not reply.member:
                self._ask(member, others)
                return
            member.recent.skip_to(reply.seen, self._ctx.now)
            self._begun(member, first)

        self._calls.ask(
            first, lambda number: SeenRequest(number, member.topic), SeenReply, answered
        )

    def on_request(self, sender: Contact, message: SeenRequest, member: Membership | None) -> None:
        if member is None or not member.subscribed:
            self._ctx.send(sender, SeenReply(message.request, False))
        else:
            self._ctx.send(sender, SeenReply(message.request, True, member.recent.seen()))
