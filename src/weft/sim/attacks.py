"""The tactics of hostile peers, one per attack (`sim/hostile.py` has what they share).

The attacks are those of GossipSub v1.1's evaluation (Vyzovitis et al. 2020, Section 6), of the
literature on peer sampling (Bortnikov et al., Brahms, 2009), and those that worked against weft's
own peers: poisoned views, eclipse by links that are "urgent", black holes that make themselves
everybody's access point, selective drop, forged and replayed events, spam and amplified walks,
lies about sizes and holdings, ids chosen beside a topic's place. Of the peers that drop events,
each second one drops some and looks like a good neighbour, the others drop all and look busy.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TypeVar

from msgspec.structs import replace

from weft.documents.run import NOTHING_BEFORE, Run, Statement
from weft.documents.signature import SIGNATURE_BYTES
from weft.ids import GENERAL, Contact, OverlayId, PeerId, Topic
from weft.protocol import seam
from weft.protocol.config import Links, Routing
from weft.protocol.flood import FloodMember
from weft.protocol.history.blocks import BlocksReply
from weft.protocol.history.reader import PageReply
from weft.protocol.kademlia.rpc import FindReply, Neighbour
from weft.protocol.liveness import LinkList, Ping, Pong
from weft.protocol.membership import (
    MEMBERS_MAX,
    Advert,
    Descriptor,
    JoinGift,
    JoinReply,
    JoinWalk,
    OverlayNews,
    ShuffleReply,
    ShuffleRequest,
)
from weft.protocol.multi_topic import Again
from weft.protocol.publication import RouteCheck, RouteEvent, RouteKnown, RouteResult
from weft.protocol.pulsar.branch import RendezvousSync
from weft.protocol.recent import IHave, Offer, Repair
from weft.protocol.tera.access_points import (
    Advertisement,
    Hint,
    LookupHit,
    LookupWalk,
    TableCopy,
    TableEntry,
)
from weft.protocol.tera.announcements import IHaveOfTopics
from weft.protocol.tera.links import LinkReply, LinkRequest, Unlink
from weft.protocol.tera.questions import Passed
from weft.protocol.tera.size import SampleWalk
from weft.protocol.topic_dht.events import Cast
from weft.protocol.topic_dht.roles import REPLACE, Appeared, Invite, Rejoin, RoleRequest
from weft.protocol.topic_dht.upkeep import IsChild, IsParent
from weft.protocol.wire import Message, Payload, Span, span_of
from weft.rules.draw import absorb, below
from weft.sim.faults import Attack
from weft.sim.hostile import STRIKE_MS, Gang, Tactic

T = TypeVar("T")

AT_ONCE = 4
"""guess: honest peers that one hostile peer attacks in a second; a hundred hostile peers reach 200
peers twice a second, as on the threat page."""
STUFFED = 64
"""guess: entries in a stuffed view; a message may carry 128."""
EVERY = 3
"""guess: a dropping forwarder drops every third event, and all of one publisher."""
FAR_AHEAD = (1 << 20) - 10
"""How far a forged number may lie above the floor and still be believed (threat page)."""
FLUSH = 16
"""guess: events that are sent again, and made-up entries, in one message."""
STRANGERS = 4
"""guess: made-up publishers in a second. Each of their events is valid and goes to all members, so
their number decides what a run costs: with 16, a run of 12 peers has 57,000 signatures to
verify."""
TRIES = 16
"""guess: overlay ids that a liar tries for each that it names."""
LINKS_MOST = Links().most
"""A victim with this many links to the gang is left alone: one more would evict another member."""
STEPS_MAX, LOOKUP_STEPS_MAX = 64, 4_096
"""The most steps that walks may ask for."""
PAYLOAD = b"hostile "

_OURS_OR_NOT = (True, False)
_CARRIERS = (Payload, Again, IHave, IHaveOfTopics, Offer, Repair, Cast, BlocksReply, PageReply)
"""Messages that bring events, or say where they are."""


class Member:
    """The base of all tactics: a peer that behaves as it should, and knows its gang."""

    def __init__(self, gang: Gang, me: Contact, number: int) -> None:
        self._gang = gang
        self._me = me
        self._number = number
        self._draws = 0
        self._picks = gang.dice.key("hostile.pick", 0, number)

    def answers(self, sender: Contact, message: Message) -> list[seam.Effect] | None:
        return None

    def twists(self, to: Contact, message: Message) -> Message | None:
        return message

    def strikes(self, now: seam.Millis) -> Iterator[seam.Effect]:
        return iter(())

    def publishes(self, now: seam.Millis) -> Iterator[tuple[Topic, bytes]]:
        return iter(())

    def _forged(
        self, topic: Topic, publisher: PeerId, life: int, number: int, now: seam.Millis
    ) -> Run:
        payload = PAYLOAD + b"%d" % number
        return self._gang.forged(topic, publisher, life, number, payload, now)

    # --- draws ----------------------------------------------------------------------------------

    def _pick(self, items: Sequence[T]) -> T:
        self._draws += 1
        return self._pick_at(self._draws, items)

    def _pick_at(self, draw: int, items: Sequence[T]) -> T:
        """Draws as `Dice.pick`, from a key that is kept: a stuffed view has 64 names, and drawing
        them took half the time of such a run."""
        return items[below(absorb(self._picks, draw), len(items))]

    def _victims(self, count: int = AT_ONCE) -> list[Contact]:
        """Up to `count` honest peers, from a drawn place of their list on."""
        honest = self._gang.honest
        self._draws += 1
        start = self._gang.dice.below("hostile.start", len(honest), self._number, self._draws)
        return [honest[(start + step) % len(honest)] for step in range(min(count, len(honest)))]

    def _colluders(self, count: int) -> list[Contact]:
        """Some of the gang's identities."""
        return [self._pick(self._gang.members) for _ in range(count)]


# --- views --------------------------------------------------------------------------------------


class Poison(Member):
    """Fills views, tables and walks with identities of the gang and with peers that never were."""

    def twists(self, to: Contact, message: Message) -> Message | None:
        if isinstance(message, ShuffleRequest | ShuffleReply | JoinReply):
            return replace(message, descriptors=self._stuffing(20))
        if isinstance(message, JoinGift):
            return replace(message, descriptor=self._stuffing(1)[0])
        if isinstance(message, LookupHit):
            return replace(message, access_point=self._contact())
        if isinstance(message, Hint):
            return replace(message, member=self._contact())
        if isinstance(message, TableCopy):
            return TableCopy(
                [replace(one, access_point=self._contact()) for one in message.entries]
            )
        if isinstance(message, FindReply):
            return replace(message, closer=[Neighbour(self._contact()) for _ in range(20)])
        return message

    def strikes(self, now: seam.Millis) -> Iterator[seam.Effect]:
        for topic in (GENERAL, *self._gang.topics):
            for victim in self._victims(2):
                yield seam.Send(victim, self._stuffed(topic, now))
                walk = JoinWalk(topic, self._contact(), 1)
                yield seam.Send(victim, walk)

    def _stuffed(self, topic: Topic, now: seam.Millis) -> ShuffleRequest:
        news = OverlayNews(overlay=MEMBERS_MAX)
        return ShuffleRequest(topic, now + (1 << 40), self._stuffing(STUFFED), news)

    def _stuffing(self, count: int) -> list[Descriptor]:
        return [Descriptor(self._contact(), 0) for _ in range(count)]

    def _contact(self) -> Contact:
        """A member of the gang, or a made-up peer: one draw for each, and one to choose by."""
        self._draws += 3
        ours = self._pick_at(self._draws, _OURS_OR_NOT)
        if ours:
            return self._pick_at(self._draws - 2, self._gang.members)
        return self._pick_at(self._draws - 1, self._gang.made_up)


class Eclipse(Poison):
    """Takes all links of its victims: it asks for them as if it were cut off, agrees to all that
    are asked of it, and passes nothing on. Views around the victims are stuffed with the gang."""

    def __init__(self, gang: Gang, me: Contact, number: int, routing: Routing) -> None:
        super().__init__(gang, me, number)
        self._routing = routing

    def answers(self, sender: Contact, message: Message) -> list[seam.Effect] | None:
        if isinstance(message, LinkRequest | LinkReply | Unlink):
            self._gang.learn_link(sender.peer, self._me.peer, message)
        if isinstance(message, LinkRequest):
            return [seam.Send(sender, LinkReply(message.topic, True, message.recent))]
        if isinstance(message, LinkReply):
            return []
        if isinstance(message, Ping):  # the other end's list of links is always right
            return [seam.Send(sender, Pong(message.nonce, message.links))]
        if isinstance(message, LinkList):
            return [seam.Send(sender, LinkList(message.topics, False))] if message.first else []
        return None

    def twists(self, to: Contact, message: Message) -> Message | None:
        if isinstance(message, (*_CARRIERS, Unlink)):
            return None
        return super().twists(to, message)

    def strikes(self, now: seam.Millis) -> Iterator[seam.Effect]:
        for topic in self._gang.topics:
            for victim in self._victims(2 * AT_ONCE):
                held = self._gang.links_to(topic, victim.peer)
                if self._me.peer not in held and len(held) < LINKS_MOST:
                    yield seam.Send(victim, LinkRequest(topic, True))
            yield from self._claims(topic, now)
        for victim in self._victims(1):
            yield seam.Send(victim, self._stuffed(self._pick((GENERAL, *self._gang.topics)), now))

    def _contact(self) -> Contact:
        return self._pick(self._gang.members)

    def _claims(self, topic: Topic, now: seam.Millis) -> Iterator[seam.Effect]:
        """Claim roles for the gang, in routings that have roles."""
        gang = self._colluders(8)
        if self._routing == "topic-dht":
            for victim in self._victims(2):
                yield seam.Send(victim, IsChild(topic, gang))
                yield seam.Send(victim, Appeared(now, topic))
                yield seam.Send(victim, Rejoin(now, topic, gang))
                yield seam.Send(victim, RoleRequest(now, topic, REPLACE))
                yield seam.Send(victim, Invite(topic, REPLACE))
                yield seam.Send(victim, IsParent(topic, self._pick(self._gang.honest)))
        elif self._routing == "pulsarcast":
            for victim in self._victims(2):
                beat = 1 << 40
                sync = RendezvousSync(topic, beat + now, True, 0, gang, gang, True)
                yield seam.Send(victim, sync)
        elif self._routing == "flood":
            for victim in self._victims(2):
                yield seam.Send(victim, FloodMember(topic, self._me, 1, now))


# --- events that do not arrive --------------------------------------------------------------------


class BlackHole(Member):
    """A member and everybody's access point, that accepts all and passes on nothing."""

    def answers(self, sender: Contact, message: Message) -> list[seam.Effect] | None:
        if isinstance(message, RouteEvent):
            run = message.run
            taken = RouteResult(message.topic, run.incarnation, run.first, True)
            return [seam.Send(sender, taken)]
        if isinstance(message, RouteCheck):
            numbers = message.numbers
            known = RouteKnown(message.topic, message.incarnation, numbers, [])
            return [seam.Send(sender, known)]
        if isinstance(message, LookupWalk):
            return [seam.Send(message.origin, LookupHit(message.lookup, self._me))]
        return None

    def twists(self, to: Contact, message: Message) -> Message | None:
        return None if isinstance(message, _CARRIERS) else message

    def strikes(self, now: seam.Millis) -> Iterator[seam.Effect]:
        """An advertised popularity of 1 enters every table (TERA's rule admits by 1/popularity)."""
        adverts = [Advert(topic, OverlayId(MEMBERS_MAX), 1) for topic in self._gang.topics]
        for victim in self._victims():
            yield seam.Send(victim, Advertisement(adverts))


class Drop(Member):
    """Passes on most, so that it is taken for a good neighbour, and drops the same events as the
    others of its gang: every third, and all of one publisher."""

    def twists(self, to: Contact, message: Message) -> Message | None:
        if isinstance(message, Payload | Cast) and self._drops(message.run):
            return None
        if isinstance(message, Again) and message.number % EVERY == 0:
            return None
        if isinstance(message, Repair):
            return replace(message, runs=[one for one in message.runs if not self._drops(one)])
        if isinstance(message, IHave | Offer):
            return replace(message, spans=self._told(message.spans))
        if isinstance(message, IHaveOfTopics):
            announced = [replace(one, spans=self._told(one.spans)) for one in message.announced]
            return replace(message, announced=announced)
        return message

    def _told(self, spans: list[Span]) -> list[Span]:
        return [one for one in spans if one.first % EVERY]

    def _drops(self, run: Run) -> bool:
        disliked = min((peer for _, peer in self._gang.latest), default=None)
        return run.first % EVERY == 0 or run.publisher == disliked


class Feign(Member):
    """Passes nothing on, but sends empty announcements and announcements of old events, as often as
    events come, so that its links look busy."""

    def __init__(self, gang: Gang, me: Contact, number: int) -> None:
        super().__init__(gang, me, number)
        self._fooled: dict[PeerId, Contact] = {}  # peers that it should have sent events to

    def twists(self, to: Contact, message: Message) -> Message | None:
        if isinstance(message, Payload | Again | Cast | IHave | IHaveOfTopics):
            self._fooled[to.peer] = to
            return None
        return None if isinstance(message, Offer | Repair | Passed) else message

    def strikes(self, now: seam.Millis) -> Iterator[seam.Effect]:
        for topic in self._gang.topics:
            oldest = next(iter(self._gang.runs[topic]), None)
            spans = [span_of(oldest)] if oldest is not None and now // STRIKE_MS % 2 else []
            for victim in self._fooled.values():
                yield seam.Send(victim, IHave(topic, spans))


# --- events that never were -----------------------------------------------------------------------


def _false_statement(publisher: PeerId, life: int, number: int) -> Statement:
    """An unsigned statement that a peer has published more than it has."""
    nothing = NOTHING_BEFORE
    return Statement(publisher, life, number, 1, 0, nothing, nothing, bytes(SIGNATURE_BYTES))


class Forge(Member):
    """Publishes under honest names, ahead of what they have published, and tells newcomers that
    they need nothing."""

    def twists(self, to: Contact, message: Message) -> Message | None:
        if isinstance(message, JoinReply):
            known = self._gang.publishers(message.topic)
            seen = [_false_statement(peer, life, number + 1_000) for peer, life, number in known]
            return replace(message, seen=seen)
        return message

    def strikes(self, now: seam.Millis) -> Iterator[seam.Effect]:
        for topic in self._gang.topics:
            known = self._gang.publishers(topic)
            if not known:
                continue
            peer, life, number = self._pick(known)
            ahead = (1, 2, 3, FAR_AHEAD)
            next_ones = [self._forged(topic, peer, life, number + one, now) for one in ahead]
            for victim in self._victims():
                yield seam.Send(victim, Repair(topic, next_ones))
                yield seam.Send(victim, Payload(topic, next_ones[0], 1))


class Replay(Member):
    """Makes its victims forget which events they have seen, by many made-up publishers, and sends
    those events again."""

    def strikes(self, now: seam.Millis) -> Iterator[seam.Effect]:
        if not self._gang.has_turn(self._me, now):
            return
        for topic in self._gang.topics:
            again = list(self._gang.runs[topic])[:FLUSH]
            made_up = [
                self._forged(topic, self._pick(self._gang.made_up).peer, now, 1, now)
                for _ in range(STRANGERS)
            ]
            for victim in self._victims(2):
                yield seam.Send(victim, Repair(topic, made_up))
                if again:
                    yield seam.Send(victim, Repair(topic, again))


class Spam(Member):
    """Publishes at a high rate, under its own name and under made-up ones, and sends walks that
    honest peers carry on for others."""

    def publishes(self, now: seam.Millis) -> Iterator[tuple[Topic, bytes]]:
        for topic in self._gang.topics if self._gang.has_turn(self._me, now) else ():
            for _ in range(self._gang.burst):
                self._draws += 1
                yield topic, PAYLOAD + b"%d of %d" % (self._draws, self._number)

    def strikes(self, now: seam.Millis) -> Iterator[seam.Effect]:
        for topic in self._gang.topics:
            if self._gang.has_turn(self._me, now):
                yield from self._events(topic, now)
            if self._gang.has_turn(self._me, now, self._gang.walkers):
                yield from self._walks(topic, now)

    def _events(self, topic: Topic, now: seam.Millis) -> Iterator[seam.Effect]:
        """Events of a made-up publisher."""
        stranger = self._pick(self._gang.made_up)
        numbers = range(1, self._gang.burst + 1)
        made_up = [self._forged(topic, stranger.peer, now, one, now) for one in numbers]
        for victim in self._victims(2):
            yield seam.Send(victim, Repair(topic, made_up))

    def _walks(self, topic: Topic, now: seam.Millis) -> Iterator[seam.Effect]:
        """Walks in the name of honest peers, which get the answers."""
        for victim in self._victims(2):
            other = self._pick(self._gang.honest)
            nowhere = Topic(f"/nowhere/{now}")
            yield seam.Send(victim, LookupWalk(nowhere, other, now, LOOKUP_STEPS_MAX))
            yield seam.Send(victim, SampleWalk(topic, other, now, STEPS_MAX))
            yield seam.Send(victim, JoinWalk(topic, other, STEPS_MAX))


class Lie(Member):
    """False sizes and overlay ids, announcements of events that do not exist, tables of nothing."""

    def twists(self, to: Contact, message: Message) -> Message | None:
        if isinstance(message, ShuffleRequest | ShuffleReply | JoinReply):
            news = OverlayNews(self._ground(message.topic), MEMBERS_MAX, 0, self._draws)
            message = replace(message, news=news)
        if isinstance(message, Advertisement | ShuffleRequest | ShuffleReply):
            adverts = [replace(one, popularity=MEMBERS_MAX) for one in message.adverts]
            return replace(message, adverts=adverts)
        return message

    def _ground(self, topic: Topic) -> OverlayId:
        """An overlay id that survives all ids that the gang has named before, if a few tries find
        such an id."""
        first, self._draws = self._draws + 1, self._draws + TRIES
        drawn = [
            self._gang.dice.bits("hostile.overlay", self._number, first + attempt)
            for attempt in range(TRIES)
        ]
        return self._gang.best_overlay(topic, [OverlayId(bits >> 1) for bits in drawn])

    def strikes(self, now: seam.Millis) -> Iterator[seam.Effect]:
        for topic in self._gang.topics:
            false = [
                Span(peer, life, number + 1, number + 50)
                for peer, life, number in self._gang.publishers(topic)[:8]
            ]
            entries = [
                TableEntry(Topic(f"{topic}/{number}"), now, self._pick(self._gang.made_up))
                for number in range(FLUSH)
            ]
            for victim in self._victims():
                if false:
                    yield seam.Send(victim, IHave(topic, false))
                    yield seam.Send(victim, Offer(topic, false, False))
                yield seam.Send(victim, TableCopy(entries))
                yield seam.Send(victim, Hint(topic, now, self._pick(self._gang.made_up)))


# --- ids that were chosen -------------------------------------------------------------------------


class Ground(BlackHole):
    """A black hole whose id lies beside a topic's place, or below all others: its own events shape
    the tree then, along links that carry nothing else."""

    def twists(self, to: Contact, message: Message) -> Message | None:
        if isinstance(message, Payload | Cast) and message.run.publisher == self._me.peer:
            return message
        return super().twists(to, message)

    def publishes(self, now: seam.Millis) -> Iterator[tuple[Topic, bytes]]:
        for topic in self._gang.topics if self._gang.has_turn(self._me, now) else ():
            self._draws += 1
            yield topic, PAYLOAD + b"%d of %d" % (self._draws, self._number)


def tactic_of(attack: Attack, gang: Gang, me: Contact, number: int, routing: Routing) -> Tactic:
    if attack == "eclipse":
        return Eclipse(gang, me, number, routing)
    if attack == "drop" and number % 2:
        return Feign(gang, me, number)
    kinds: dict[Attack, type[Member]] = {
        "poison": Poison,
        "black-hole": BlackHole,
        "drop": Drop,
        "forge": Forge,
        "replay": Replay,
        "spam": Spam,
        "lie": Lie,
        "ground": Ground,
    }
    return kinds[attack](gang, me, number)
