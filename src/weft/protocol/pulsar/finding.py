"""Finding a topic's tree from outside: a lookup towards its id that asks each peer on the way
whether it is a member (as Scribe does on the way to its root).

For those who publish without being in the tree, this takes the place of TERA's walks: it answers
with the first member found, by the same signal. The lookup asks all of the closest peers, so if
none of them is a member there is no tree.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable

from weft.ids import Contact, PeerId, Topic
from weft.protocol.context import Context, LookupDone
from weft.protocol.kademlia.kademlia import Kademlia
from weft.protocol.kademlia.lookup import Outcome, Question
from weft.protocol.kademlia.rpc import PROVIDERS, FindReply
from weft.protocol.kademlia.table import PLAIN, Entry
from weft.rules.multicast import tree_key, tree_location

Found = Callable[[Contact | None, list[Entry]], None]
"""The first member on the way, or None and the closest peers to the topic's id."""


def find_member(dht: Kademlia, topic: Topic, without: Collection[PeerId], then: Found) -> bool:
    """Walk towards a topic's id until somebody is in its tree; False if too many lookups wait."""
    member: list[Contact] = []

    def seen(entry: Entry, reply: FindReply) -> bool:
        peer = entry.contact.peer
        if peer not in without and any(one.peer == peer for one in reply.providers):
            member.append(entry.contact)
        return bool(member)

    def done(outcome: Outcome) -> None:
        then(member[0] if member else None, outcome.closest)

    question = Question(PLAIN, tree_location(topic), PROVIDERS, tree_key(topic))
    return dht.find(question, done, seen)


class Finding:
    """As `lookup.Lookup`, for `publishing.Publishing`."""

    def __init__(self, ctx: Context, dht: Kademlia) -> None:
        self._ctx = ctx
        self._dht = dht

    def start(self, topic: Topic, avoid: Iterable[PeerId] = ()) -> int:
        """Begin a lookup; its number comes back in a `LookupDone`."""
        number = self._ctx.next_serial()

        def then(member: Contact | None, closest: list[Entry]) -> None:
            contacts = (member,) if member is not None else ()
            self._ctx.tell(LookupDone(number, topic, contacts))

        if not find_member(self._dht, topic, list(avoid), then):
            self._ctx.tell(LookupDone(number, topic, ()))
        return number
