"""Hostile peers: machines with the same seam as the honest one, that know the rules and break them.

A hostile peer wraps an honest `Peer`. So it is a full member: it answers, keeps views and links,
passes events on, and cannot be told from others until its attack begins. From then on its attack
(`sim/attacks.py`) decides three things: which messages it answers itself, how it changes or drops
the messages of the honest machine, and what it sends once a second.

Hostile peers work together (`Gang`): they share one list of identities and one memory of the
events, publishers and members that any of them has met. They adapt. A member that several honest
peers have given up rests: it behaves for a while, to be accepted again, and other members attack
its victims. Their ids may be chosen (`ground`): from many keys, the gang takes the one closest to
the place that it wants.

All of it is drawn from the seed. Deliveries to a hostile peer's own application are left out of the
effects: nothing is required for it.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Protocol

from weft.documents.run import NOTHING_BEFORE, Run, Statement, sign_run
from weft.documents.signature import SIGNATURE_BYTES, Signer
from weft.ids import Contact, OverlayId, PeerId, Topic, make_address
from weft.protocol import messages as m
from weft.protocol import seam
from weft.protocol.membership import JoinReply
from weft.protocol.recent import IHave, Offer
from weft.protocol.tera.announcements import IHaveOfTopics
from weft.protocol.tera.links import LinkReply, LinkRequest, Unlink
from weft.protocol.wire import Message, Span
from weft.rules.draw import absorb, stream_of
from weft.rules.multicast import tree_location
from weft.rules.prefix import location_of
from weft.rules.tera import keeps_overlay
from weft.sim.dice import Dice
from weft.sim.faults import Attack
from weft.sim.node import keyed

STRIKE = "hostile.strike"
"""The timer of a hostile peer's own attacks."""
STRIKE_MS = 1_000
"""guess: the rate at which the attackers of `docs/threats.md` worked."""
GIVEN_UP_BY = 10
"""guess: a member that so many honest peers gave up, as many as it may have links, rests …"""
REST_MS = 20_000
"""guess: … for so long, two cycles: about the time in which honest peers accept it again."""
EVENTS_KEPT = 256
"""guess: events of one topic that a gang remembers, to send them again."""
MADE_UP = 512
"""guess: contacts that a gang makes up; a view holds 20."""
BURST = 8
"""guess: events of its own that a spamming peer publishes in a second."""
KEYS_TRIED = 1_024
"""The attackers of `docs/threats.md` tried 691 and 745 keys."""
_TOKENS = 1 << 50
"""Tokens of the machine's own publishes; those of a world's users are small."""
_STRANGERS = stream_of("hostile.strangers")


class Tactic(Protocol):
    """How one hostile peer differs from an honest one (`sim/attacks.py`)."""

    def answers(self, sender: Contact, message: Message) -> list[seam.Effect] | None:
        """Its own answer; None: the honest machine handles the message."""

    def twists(self, to: Contact, message: Message) -> Message | None:
        """A message of the honest machine as it is sent; None: it is dropped."""

    def strikes(self, now: seam.Millis) -> Iterable[seam.Effect]:
        """The effects of its own attacks, once a second."""

    def publishes(self, now: seam.Millis) -> Iterable[tuple[Topic, bytes]]:
        """Events under its own name, once a second, as a user of the honest machine."""


class Gang:
    """The state that all hostile peers of a network share."""

    def __init__(
        self,
        seed: int,
        begins_ms: int,
        honest: Sequence[Contact],
        topics: Sequence[Topic],
        floods_until_ms: int | None = None,
        burst: int = BURST,
        walkers: int = 1,
    ) -> None:
        """`honest`: the peers that a crawl of the network has found; `topics`: those under attack.
        Before `begins_ms` all members of the gang behave as they should. From `floods_until_ms`
        on they publish no more events that are valid. `burst`: how many events a spamming member
        publishes in a second; `walkers`: how many of them send walks in one."""
        self.dice = Dice(seed)
        self.begins_ms = begins_ms
        self._floods_until_ms = floods_until_ms
        self.burst = burst
        self.walkers = walkers
        self.honest = list(honest)
        self.topics = list(topics)
        self.members: list[Contact] = []
        self._places: dict[PeerId, int] = {}
        strangers = [_invent(seed, number) for number in range(MADE_UP)]
        self.made_up = [contact for contact, _ in strangers]
        self._signers = {contact.peer: sign for contact, sign in strangers}
        self._ids = {contact.peer for contact in self.made_up}
        self._links: dict[tuple[Topic, PeerId], set[PeerId]] = defaultdict(set)  # held, by victim
        self.runs: dict[Topic, deque[Run]] = defaultdict(lambda: deque(maxlen=EVENTS_KEPT))
        self.latest: dict[tuple[Topic, PeerId], tuple[int, int]] = {}  # incarnation and number
        self._overlays: dict[Topic, OverlayId] = {}  # the best false ids found so far
        self._given_up: dict[PeerId, set[PeerId]] = defaultdict(set)
        self._rests_until: dict[PeerId, int] = {}

    def enlist(self, contact: Contact) -> None:
        """Add one more identity."""
        self._places[contact.peer] = len(self.members)
        self.members.append(contact)
        self._ids.add(contact.peer)

    def owns(self, peer: PeerId) -> bool:
        """Whether an id is one of the gang's, or made up by it."""
        return peer in self._ids

    # --- what its members have met --------------------------------------------------------------

    def learn(self, message: Message) -> None:
        """Remember the events and publishers in a message that any member got."""
        if isinstance(message, m.PAYLOAD_KINDS):
            for run in m.runs_in(message):
                if self._is_news(message.topic, run):
                    self.runs[message.topic].append(run)
                self._note(message.topic, PeerId(run.publisher), run.incarnation, run.last)
        elif isinstance(message, IHave | Offer):
            self._note_spans(message.topic, message.spans)
        elif isinstance(message, IHaveOfTopics):
            for one in message.announced:
                self._note_spans(one.topic, one.spans)
        elif isinstance(message, JoinReply):
            self._note_spans(message.topic, message.seen)

    def learn_link(
        self, victim: PeerId, member: PeerId, message: LinkRequest | LinkReply | Unlink
    ) -> None:
        """Remember whether a member has a link to the victim that sent it this; all that victims
        ask for are granted."""
        members = self._links[message.topic, victim]
        if isinstance(message, Unlink):
            members.discard(member)
        elif isinstance(message, LinkRequest) or message.accepted:
            members.add(member)

    def links_to(self, topic: Topic, victim: PeerId) -> set[PeerId]:
        """The members that hold a link to this victim."""
        return self._links[topic, victim]

    def best_overlay(self, topic: Topic, tried: Sequence[OverlayId]) -> OverlayId:
        """Of all ids tried so far, and these, the one that survives the others."""
        best = self._overlays.get(topic, tried[0])
        for one in tried:
            if not keeps_overlay(topic, best, one):
                best = one
        self._overlays[topic] = best
        return best

    def _is_news(self, topic: Topic, run: Run) -> bool:
        publisher = PeerId(run.publisher)
        known = self.latest.get((topic, publisher), (0, 0))
        return not self.owns(publisher) and (run.incarnation, run.last) > known

    def _note_spans(self, topic: Topic, spans: Iterable[Span | Statement]) -> None:
        for span in spans:
            self._note(topic, PeerId(span.publisher), span.incarnation, span.last)

    def forged(
        self, topic: Topic, publisher: PeerId, life: int, number: int, payload: bytes, now: int
    ) -> Run:
        """A run that its publisher never published; it has a valid signature only if the gang made
        the publisher up."""
        sign = self._signers.get(publisher, _signs_nothing)
        args = topic, publisher, life, number, now, (payload,), NOTHING_BEFORE
        return sign_run(sign, *args).run

    def _note(self, topic: Topic, publisher: PeerId, incarnation: int, number: int) -> None:
        known = self.latest.get((topic, publisher), (0, 0))
        if not self.owns(publisher):
            self.latest[topic, publisher] = max(known, (incarnation, number))

    def publishers(self, topic: Topic) -> list[tuple[PeerId, int, int]]:
        """Honest publishers heard of, each with its life and its latest number."""
        return [(peer, *numbers) for (of, peer), numbers in self.latest.items() if of == topic]

    def has_turn(self, member: Contact, now: seam.Millis, at_once: int = 1) -> bool:
        """Whether this member is one of those, `at_once`, that may flood now. Floods reach every
        peer of a topic, so only one member does it at a time: a simulator cannot play more. They
        end with a run's last events: valid events of the gang must reach all members, too, and
        those of a run's last second could not."""
        if self._floods_until_ms is not None and now >= self._floods_until_ms:
            return False
        return self._is_among(member.peer, now, at_once)

    def strikes(self, member: PeerId, now: seam.Millis) -> bool:
        """Whether this member strikes now. One strike a second for each honest peer is more than
        all that those of `docs/threats.md` did; where Sybils are more, they take turns."""
        at_once = len(self.honest)
        if len(self.members) > at_once and not self._is_among(member, now, at_once):
            return False
        return self.attacks(member, now)

    def _is_among(self, member: PeerId, now: seam.Millis, at_once: int) -> bool:
        """Whether it is the turn of this member: each second one more has it, one less."""
        place, members = self._places.get(member), len(self.members)
        return place is not None and (place - now // STRIKE_MS) % members < at_once

    # --- when they strike, and when they rest ---------------------------------------------------

    def attacks(self, member: PeerId, now: seam.Millis) -> bool:
        """Whether this member does harm now."""
        return now >= self.begins_ms and now >= self._rests_until.get(member, 0)

    def given_up(self, member: PeerId, by: PeerId, now: seam.Millis) -> None:
        """An honest peer has given a member up: after several of these the member rests."""
        if self.owns(by) or not self.attacks(member, now):
            return
        self._given_up[member].add(by)
        if len(self._given_up[member]) >= GIVEN_UP_BY:
            del self._given_up[member]
            self._rests_until[member] = now + REST_MS


class HostilePeer:
    """A machine that is honest until its gang strikes."""

    def __init__(
        self, honest: seam.Machine, me: PeerId, gang: Gang, make_tactic: Callable[[], Tactic]
    ) -> None:
        self._honest = honest
        self._me = me
        self._gang = gang
        self._tactic = make_tactic()
        self._token = _TOKENS

    def handle(self, fact: seam.Input, now: seam.Millis) -> list[seam.Effect]:
        attacks = self._gang.attacks(self._me, now)
        if isinstance(fact, seam.TimerFired) and fact.timer.kind == STRIKE:
            strikes = self._gang.strikes(self._me, now)
            return [_next_strike(), *(self._strike(now) if strikes else ())]
        if isinstance(fact, seam.Received):
            self._gang.learn(fact.message)
            self._note_refusal(fact, now)
            own = self._tactic.answers(fact.sender, fact.message) if attacks else None
            if own is not None:
                return own
        wished = self._wished(fact, now, attacks)
        return [*wished, _next_strike()] if isinstance(fact, seam.Started) else wished

    def _strike(self, now: seam.Millis) -> Iterator[seam.Effect]:
        yield from self._tactic.strikes(now)
        for topic, payload in self._tactic.publishes(now):
            self._token += 1
            yield from self._wished(seam.Publish(self._token, topic, (payload,), now), now, True)

    def _wished(self, fact: seam.Input, now: seam.Millis, attacks: bool) -> list[seam.Effect]:
        """The effects of the honest machine, as the attack changes them."""
        wished: list[seam.Effect] = []
        for effect in self._honest.handle(fact, now):
            if isinstance(effect, seam.Deliver | seam.Trace):
                continue
            if attacks and isinstance(effect, seam.Send):
                message = self._tactic.twists(effect.to, effect.message)
                if message is not None:
                    wished.append(seam.Send(effect.to, message))
            else:
                wished.append(effect)
        return wished

    def _note_refusal(self, fact: seam.Received, now: seam.Millis) -> None:
        if isinstance(fact.message, Unlink):
            self._gang.given_up(self._me, fact.sender.peer, now)


def _next_strike() -> seam.SetTimer:
    return seam.SetTimer(STRIKE_MS, seam.Timer(STRIKE))


# --- identities -------------------------------------------------------------------------------


def _signs_nothing(_: bytes) -> bytes:
    return bytes(SIGNATURE_BYTES)


def _invent(seed: int, number: int) -> tuple[Contact, Signer]:
    """A made-up peer: it has a key, but no machine."""
    contact, sign = keyed(absorb(seed, _STRANGERS), number)
    address = make_address(f"11.0.{number >> 8 & 255}.{number & 255}", 1)
    return Contact(contact.peer, address), sign


def identity(
    seed: int, number: int, attack: Attack, topics: Sequence[Topic]
) -> tuple[Contact, Signer]:
    """The contact of a hostile peer, and its signer. For the attack `ground`, ids are in turn as
    close as possible to a topic's place, and as low as possible: the lowest id shapes trees."""
    if attack != "ground" or not topics:
        return keyed(seed, number)
    topic = topics[number // 2 % len(topics)]
    wanted = tree_location(topic) if number % 2 else None

    def distance(attempt: int) -> int:
        peer = keyed(absorb(seed, attempt), number)[0].peer
        if wanted is None:
            return int.from_bytes(peer, "big")
        return location_of(peer) ^ wanted

    return keyed(absorb(seed, min(range(KEYS_TRIED), key=distance)), number)
