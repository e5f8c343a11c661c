"""The level-i links of a forwarder, by which trees go (Baehni and others, 5.2, `rules/treecast`).

Links of a level are some of the forwarders that the routing table has in that bucket: for each of
a few places of that half, drawn once and for all, the one closest to it. So they depend on who is
there and not on who came first (else the first ones would do most of the work), they change only
when somebody closer comes or they are lost, and they lead to the same peers in all topics that are
shared with them. Repair works from both ends, as the paper has it:
a newcomer makes itself known to those that nobody but it can serve as a link of that level
(`roles.affected`: they are told by `Appeared`), and a member that has no link on a level routes to
that level's place, at once when it becomes a forwarder and for one level at a time later on.

Parent, children and links are watched (`protocol/liveness.py`): who is silent is pinged.
"""

from __future__ import annotations

from weft.ids import Contact, PeerId
from weft.protocol.context import Context, LinkDown, LinkUp
from weft.protocol.kademlia.table import Entry
from weft.protocol.topic_dht.membership import Links, Membership
from weft.protocol.topic_dht.routing import FEW, Routing
from weft.protocol.topic_dht.settings import Settings
from weft.protocol.topic_dht.space import TOPICS, position
from weft.protocol.topic_dht.state import Forwarder, Role, Roles
from weft.rules import treecast
from weft.rules.draw import stream_of
from weft.rules.prefix import BITS

_KEEP = stream_of("topic_dht.links")
_SEEK = stream_of("topic_dht.seek")


class Linking:
    """See the module's text."""

    def __init__(self, ctx: Context, roles: Roles, routing: Routing, settings: Settings) -> None:
        self._ctx = ctx
        self._roles = roles
        self._routing = routing
        self._settings = settings

    # --- which links there are --------------------------------------------------------------------

    def maintain(self, member: Membership) -> list[Contact]:
        """Choose links where some are gone or lacking. Returns who is linked from now on and was
        not, children excepted: they see to it themselves."""
        forwarder = self._roles.forwarding(member.topic)
        member.links = self._choose(forwarder) if forwarder is not None else {}
        came = self._watch(member)
        children = forwarder.children if forwarder is not None else ()
        return [one for one in came if one.peer not in children]

    def _choose(self, forwarder: Forwarder) -> Links:
        own = position(forwarder.place.table.own)
        known = {position(entry.key): entry.contact for entry in sound(forwarder)}
        count, key = self._settings.links_per_level, self._ctx.key(_KEEP, 0)
        chosen: Links = {}
        for level, there in treecast.levels(own, known, BITS).items():
            kept = treecast.kept_links(own, level, there, (), count, key, BITS)
            chosen[level] = {one: known[one] for one in kept}
        return chosen

    def _watch(self, member: Membership) -> list[Contact]:
        """Tell upper layers which links came and went; returns those that came."""
        role = self._roles.by_topic.get(member.topic)
        now = member.linked()
        if role is not None:
            now.update({one.peer: one for one in family(role)})
        for peer in [peer for peer in member.watched if peer not in now]:
            del member.watched[peer]
            self._ctx.tell(LinkDown(member.topic, peer))
        came = [contact for peer, contact in now.items() if peer not in member.watched]
        for contact in came:
            member.watched[contact.peer] = None
            self._ctx.tell(LinkUp(member.topic, contact, 0))
        return came

    def unwatch(self, member: Membership) -> None:
        """The topic is given up."""
        for peer in member.watched:
            self._ctx.tell(LinkDown(member.topic, peer))
        member.watched.clear()

    # --- repair -----------------------------------------------------------------------------------

    def seek_all(self, member: Membership) -> None:
        """A new forwarder looks for links on all levels that have none."""
        for level in self._empty(member):
            self._seek(member, level)

    def seek_one(self, member: Membership) -> None:
        """Look for links on some level that has none: mostly there is nobody to be found."""
        empty = self._empty(member)
        if empty:
            self._seek(member, self._ctx.pick(_SEEK, empty))

    def _empty(self, member: Membership) -> list[int]:
        return [level for level in range(max(member.links, default=0)) if level not in member.links]

    def _seek(self, member: Membership, level: int) -> None:
        own = self._roles.own(member.topic)
        target = own >> BITS << BITS | treecast.link_target(position(own), level, BITS)

        def found(entries: list[Entry]) -> None:
            """The table has learned of them; the next `maintain` chooses."""

        self._routing.find(member.topic, target, found, FEW)

    def lose(self, member: Membership, peer: PeerId) -> None:
        """A peer cannot be reached: it is no link until it is heard from again."""
        role = self._roles.by_topic.get(member.topic)
        if role is None:
            return
        role.view.pop(peer, None)
        forwarder = role.forwarder
        if forwarder is None:
            return
        forwarder.children.pop(peer, None)
        forwarder.moving.pop(peer, None)
        table = forwarder.place.table
        key = TOPICS.locate(member.topic, peer)
        entry = table.get(key) if key is not None else None
        if entry is not None and not entry.failures:
            table.failed(entry.key)


def sound(forwarder: Forwarder) -> list[Entry]:
    """Other forwarders of the topic in the table that answered last."""
    topic = forwarder.place.role
    return [one for one in forwarder.place.table if one.role == topic and not one.failures]


def family(role: Role) -> list[Contact]:
    """Parent or children."""
    if role.forwarder is not None:
        return [one.contact for one in role.forwarder.children.values()]
    return [role.child.parent] if role.child is not None else []


def size_estimate(forwarder: Forwarder, bucket_size: int) -> int:
    """How many forwarders the topic has: counted where the table has room for all, else from how
    far away the closest ones are."""
    keys = [position(entry.key) for entry in sound(forwarder)]
    if len(keys) < bucket_size:
        return len(keys) + 1
    own = position(forwarder.place.table.own)
    near = sorted(one ^ own for one in keys)[:bucket_size]
    return max(len(keys) + 1, round(len(near) * 2.0**BITS / near[-1]))
