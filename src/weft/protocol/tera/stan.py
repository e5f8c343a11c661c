"""StaN in one topic: the members ranked first at this peer, found by walks (Matos, Felber,
Oliveira, Pereira, Rivière, "Scaling up publish/subscribe overlays using interest correlation for
link sharing", Algorithm 2; the decisions are in `rules/stan.py`).

Every period a walk goes through the topic's overlay and gathers members. What it brings is merged
with the view and ranked by weight; the first stay. The ranking does not depend on the topic, so
the views of different topics fall on the same peers. From the view come the links of the push tree
(`links.py`), and flood and gossip spread over it.

Views are directed, so a member may be in nobody's view, and then no walk finds it. `InLinks` knows
the members that hold a peer: a member that takes another into its view tells it, and one that drops
it too (`InLink`); a walk that comes from a member tells the same. A peer that has lost its last
in-link asks its neighbours to adopt it at once, one after the other, the lightest first: each
answers whether it holds the asker now, and the next is asked if not. After all were asked it waits
for its next period.

A ranking that leans to shared topics needs to know which topics other peers are in
(`Acquaintances`). Only peers whose ranking leans tell their topics, in the walks that they send, so
those of the others stay unknown; two members of a topic share at least that one.

Invariants: no self and no duplicate in the view; never more entries than wanted, and fewer only
while this peer knows no more members; at most `_HOLDERS_MAX` holders and `_PEERS_MAX` peers'
topics are remembered; in one period every neighbour is asked to adopt at most once.

Deviation: a walk carries only the members that rank first at its origin, as many as the origin
wants: any peer can compute a weight, and the origin would drop the others anyway. A walk so has
at most some hundred bytes per wanted neighbour, whatever its length.

Deviation: the view starts from, and is filled up by, Cyclon's view of the topic, which stands for
the paper's overlay management protocol. What view exchanges bring is ranked too (`sample`).

Deviation: neighbours die. A neighbour that this peer has not heard from for `confirm_ms` gets a
walk of no further steps, which it answers itself; after two unanswered ones it is dropped.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping
from functools import lru_cache
from typing import Annotated, TypeAlias, Union

from msgspec import Meta, Struct
from msgspec.structs import replace

from weft.bounded import BoundedDict
from weft.ids import Contact, PeerId, Topic, WireTopic
from weft.protocol.context import Context
from weft.protocol.liveness import topic_fingerprint
from weft.protocol.membership import Cyclon
from weft.protocol.seam import Millis
from weft.protocol.settings import Settings, require
from weft.protocol.wire import LIST_MAX, Counter, Message
from weft.rules import stan as rules
from weft.rules import tree
from weft.rules.draw import absorb, slots_in, stream_of, subset_mask
from weft.rules.tera import next_period

CANDIDATES_MAX = 64
"""guess: neighbours that one walk is asked for and carries; a view holds ln n + 4.6."""
TOPICS_MAX = 512
"""guess: fingerprints of topics in one walk."""
STEPS_MAX = 64
"""guess: steps that another peer may ask a walk to take; ten times the usual number."""


class Candidate(Struct, frozen=True, array_like=True, gc=False):
    """A member that may become a neighbour of the walk's origin."""

    contact: Contact
    shared: Annotated[int, Meta(ge=1, le=1 << 16)] = 1  # topics shared with the walk's origin


Candidates: TypeAlias = Annotated[list[Candidate], Meta(max_length=CANDIDATES_MAX)]


class CollectWalk(Message, frozen=True, tag=30):
    """Gathers, step by step, the members that rank first at its origin."""

    topic: WireTopic
    origin: Contact
    walk: Counter
    steps: Annotated[int, Meta(ge=0, le=STEPS_MAX)]
    wanted: Annotated[int, Meta(ge=1, le=CANDIDATES_MAX)]
    found: Candidates
    # Fingerprints of the origin's topics, only where its ranking leans to shared ones.
    topics: Annotated[list[Counter], Meta(max_length=TOPICS_MAX)] = []


class CollectReply(Message, frozen=True, tag=31):
    """Ends a walk: the members that it has gathered."""

    topic: WireTopic
    walk: Counter
    found: Candidates


class AdoptMe(Message, frozen=True, tag=32):
    """The sender is perhaps in nobody's view; answered by InLink."""

    topic: WireTopic


class InLink(Message, frozen=True, tag=35):
    """Whether the sender has the receiver in its view from now on."""

    topic: WireTopic
    held: bool
    found: bool  # whether walks find the sender otherwise than through the receiver


StanMessage: TypeAlias = Union[CollectWalk, CollectReply, AdoptMe, InLink]


class Config(Settings):
    """Which members a peer ranks first, alike in all its topics (protocol/tera/stan.py)."""

    enabled: bool = False  # measured: see docs/protocols/stan.md, what speaks against it so far
    view_size: int = 0  # paper: 0 stands for ln n + 4.6, by the estimate of the topic's size
    walk_steps: int = 6  # measured: about the diameter (rules/stan.py)
    period_ms: Millis = 10_000  # guess: a cycle; 0: no walk but on `Collect`
    period_max: int = 32  # guess: periods between walks that bring nothing; 1: no back-off
    overhear: bool = True  # named by the paper: walks that pass are read
    sample: bool = True  # ours: what view exchanges bring is ranked too
    adopt: bool = True  # ours: members that no walk passes ask to be adopted
    lean: bool = False  # ours, opt-in: prefers shared topics, and tells walks one's own
    confirm_ms: Millis = 300_000  # guess: a neighbour not heard of for so long is asked

    def __post_init__(self) -> None:
        require(0 <= self.view_size <= 64, "stan.view_size must be 0 to 64")
        require(0 <= self.walk_steps <= 64, "stan.walk_steps must be 0 to 64")
        require(self.period_ms >= 0, "stan.period_ms must not be negative")
        require(1 <= self.period_max <= 1_024, "stan.period_max must be 1 to 1024")
        require(self.confirm_ms >= 1, "stan.confirm_ms must be at least 1")


_WALK = stream_of("stan.walk")
_SAMPLE = stream_of("stan.sample")
_WALKS_MAX = 8
"""guess: walks waited for at once; the oldest is given up."""
_UNANSWERED_MAX = 2
"""guess: walks of no steps that a neighbour may leave unanswered; one may get lost."""
_BURIED_MAX = 32
_BURIED_CYCLES = 20
"""guess, both: peers remembered that left or could not be reached, and the cycles in which no walk
brings them back."""
_HOLDERS_MAX = 64
"""guess: views have ten to twenty entries, so few members are in more views than this; what counts
is whether a member is in any."""
_PEERS_MAX = 128
"""guess: several views; each takes up to 4 kB."""

_number = lru_cache(maxsize=1 << 14)(rules.number_of)
_weight = lru_cache(maxsize=1 << 14)(rules.weight)
"""Asked for again and again, with the same few peers."""


class Acquaintances:
    """Which topics other peers are in, as far as they said; one per peer, for all its topics."""

    __slots__ = ("_mine", "_others", "_topics")

    def __init__(self, topics: Iterable[Topic]) -> None:
        self._topics = topics  # of this peer, as they come and go
        self._others: BoundedDict[PeerId, frozenset[int]] = BoundedDict(_PEERS_MAX)
        self._mine: tuple[tuple[Topic, ...], list[int]] = ((), [])

    def mine(self) -> list[int]:
        """Fingerprints of this peer's topics; of very many, the same ones as other peers take."""
        topics = tuple(self._topics)
        if topics != self._mine[0]:
            prints = sorted(
                (topic_fingerprint(topic) for topic in topics), key=lambda one: absorb(0, one)
            )
            self._mine = topics, prints[:LIST_MAX]
        return self._mine[1]

    def learn(self, peer: PeerId, topics: list[int]) -> None:
        if topics:
            self._others.renew(peer, frozenset(topics))

    def shared_with_me(self, peer: PeerId) -> int:
        return self.shared(peer, self.mine()) if peer in self._others else 1

    def shared(self, peer: PeerId, topics: list[int]) -> int:
        """In how many of these topics a peer is, at least the one that it is asked about in."""
        known = self._others.get(peer)
        return max(1, sum(topic in known for topic in topics)) if known is not None else 1


class Entry:
    """A neighbour in the ranked view."""

    __slots__ = ("adopted", "contact", "heard", "number", "shared", "unanswered")

    def __init__(self, contact: Contact, shared: int, heard: Millis) -> None:
        self.contact = contact
        self.number = _number(contact.peer)
        self.shared = shared  # topics
        self.adopted = False  # kept whatever its weight
        self.heard = heard
        self.unanswered = 0


class InLinks:
    """The in-links of one peer in one topic."""

    __slots__ = ("_asked", "_ctx", "_passed", "_topic", "holders")

    def __init__(self, ctx: Context, topic: Topic) -> None:
        self._ctx = ctx
        self._topic = topic
        self.holders: dict[PeerId, None] = {}
        self._passed: Millis = ctx.now  # when a walk from afar last came by
        self._asked: dict[PeerId, None] = {}  # in this period

    @property
    def _tells(self) -> bool:
        return self._ctx.config.stan.enabled and self._ctx.config.stan.adopt

    @property
    def _quiet(self) -> int:
        """How many of the longest periods have passed without a walk from afar; in one of them the
        walks of all members together pass each member several times."""
        config = self._ctx.config.stan
        return (self._ctx.now - self._passed) // max(1, config.period_max * config.period_ms)

    def is_lonely(self) -> bool:
        return self._tells and rules.is_lonely(len(self.holders), self._quiet)

    def can_be_found(self, without: PeerId) -> bool:
        """Whether walks find this peer otherwise than through one other peer."""
        others = len(self.holders) - (without in self.holders)
        return rules.can_be_found(self._quiet == 0, others)

    # --- what others say ------------------------------------------------------------------------

    def on_walk(self, sender: PeerId, origin: PeerId) -> None:
        """A walk came from a member that has this peer in its view."""
        self.add(sender)
        if rules.is_from_afar(0 if sender == origin else 1):
            self._passed = self._ctx.now

    def add(self, peer: PeerId) -> None:
        if peer in self.holders or len(self.holders) < _HOLDERS_MAX:
            self.holders[peer] = None

    def forget(self, peer: PeerId) -> None:
        """The peer is gone."""
        self.holders.pop(peer, None)

    def on_notice(self, sender: Contact, notice: InLink, neighbours: Iterable[Contact]) -> None:
        """A member says whether it holds this peer; a peer that was refused, or is held by nobody,
        asks the next one."""
        if notice.held:
            self.add(sender.peer)
        else:
            self.forget(sender.peer)
        refused = sender.peer in self._asked and not (notice.held and notice.found)
        if refused or not self.holders:
            self.ask(neighbours)

    # --- what this peer says --------------------------------------------------------------------

    def tell(self, peer: Contact, held: bool) -> None:
        if self._tells:
            found = self.can_be_found(peer.peer)
            self._ctx.send(peer, InLink(self._topic, held, found))

    def tell_all(self, before: Mapping[PeerId, Entry], after: Mapping[PeerId, Entry]) -> None:
        """Tell the members that this peer's view has dropped or taken in."""
        for peer, entry in before.items():
            if peer not in after:
                self.tell(entry.contact, held=False)
        for peer, entry in after.items():
            if peer not in before:
                self.tell(entry.contact, held=True)

    def new_period(self, neighbours: Iterable[Contact]) -> None:
        """A lonely member may ask every neighbour again."""
        self._asked = {}
        if self.is_lonely():
            self._ctx.counters["stan_lonely"] += 1
            self.ask(neighbours)

    def ask(self, neighbours: Iterable[Contact]) -> None:
        """Ask the first neighbour that was not asked yet."""
        to = next((each for each in neighbours if each.peer not in self._asked), None)
        if to is not None and self.is_lonely():
            self._asked[to.peer] = None
            self._ctx.send(to, AdoptMe(self._topic))


class Stan:
    """The ranked view of one peer in one topic."""

    __slots__ = (
        "_acquaintances",
        "_asked",
        "_buried",
        "_ctx",
        "_due",
        "_me",
        "_overlay",
        "_period",
        "_topic",
        "entries",
        "in_links",
        "wanted",
    )

    def __init__(
        self, ctx: Context, topic: Topic, overlay: Cyclon, acquaintances: Acquaintances
    ) -> None:
        self._ctx = ctx
        self._topic = topic
        self._overlay = overlay
        self._acquaintances = acquaintances
        self._me = _number(ctx.me.peer)
        self.entries: dict[PeerId, Entry] = {}
        self.wanted = 0
        self._period = 1
        self._due: Millis = ctx.now + ctx.config.stan.period_ms
        # Walks on their way: the neighbour that each confirms, if it does, and since when.
        self._asked: BoundedDict[int, tuple[PeerId | None, Millis]] = BoundedDict(_WALKS_MAX)
        self._buried: BoundedDict[PeerId, Millis] = BoundedDict(_BURIED_MAX)
        self.in_links = InLinks(ctx, topic)

    # --- the view -------------------------------------------------------------------------------

    def __len__(self) -> int:
        return len(self.entries)

    @property
    def waiting(self) -> int:
        """Walks on their way."""
        return len(self._asked)

    def contacts(self) -> list[Contact]:
        """The neighbours; before there are any, what Cyclon knows."""
        if not self.entries:
            return self._overlay.contacts()
        return [entry.contact for entry in self.entries.values()]

    def sample(self, count: int) -> list[Contact]:
        """Distinct neighbours, every subset equally likely."""
        contacts = self.contacts()
        mask = subset_mask(self._ctx.next_key(_SAMPLE), len(contacts), count)
        return [contacts[slot] for slot in slots_in(mask)]

    def ranked(self, also: Iterable[Contact]) -> list[Contact]:
        """All members known, in the order in which links to them are wanted."""
        known = {contact.peer: contact for contact in also}
        known.update((peer, entry.contact) for peer, entry in self.entries.items())
        places = []
        for peer, contact in known.items():
            number, shared = _number(peer), self._shared(peer)
            mine = self._weigh(self._me, number, shared)
            theirs = self._weigh(number, self._me, shared)
            places.append((tree.pair_weight(mine, theirs), number, contact))
        return [contact for _, _, contact in sorted(places, key=lambda place: place[:2])]

    def follow(self, members: int) -> None:
        """Be as large as the topic's estimated size asks for, with members that this peer knows:
        up at once, down only by two or more, since estimates are noisy and views shall stay."""
        fixed = self._ctx.config.stan.view_size
        wanted = min(fixed or rules.view_size(members), CANDIDATES_MAX)
        if wanted > self.wanted or wanted < self.wanted - 1:
            self.wanted = wanted
            self._keep(self.entries)
        self.fill()

    def fill(self) -> None:
        """Take members from Cyclon's view: any while there is room, better ones where allowed."""
        if self._ctx.config.stan.sample:
            self._consider((contact, 0) for contact in self._overlay.contacts())
        elif len(self.entries) < self.wanted:
            known = self._overlay.sample(len(self._overlay))
            others = [(contact, 0) for contact in known if contact.peer not in self.entries]
            self._consider(others[: self.wanted - len(self.entries)])

    def _consider(self, candidates: Iterable[tuple[Contact, int]]) -> bool:
        """Rank candidates (each with the number of shared topics, 0 if that was not told) among
        the neighbours; returns whether that changed the view."""
        merged = dict(self.entries)
        for contact, told in candidates:
            peer = contact.peer
            if peer == self._ctx.me.peer or peer in self._buried:
                continue
            shared = told or self._acquaintances.shared_with_me(peer)
            known = merged.get(peer)
            if known is not None:
                known.shared = max(known.shared, shared)
            else:
                merged[peer] = Entry(contact, shared, self._ctx.now)
        return self._keep(merged)

    def _keep(self, merged: dict[PeerId, Entry]) -> bool:
        numbered = {entry.number: (peer, entry) for peer, entry in merged.items()}
        kept = rules.kept(
            numbered,
            self.wanted,
            lambda number: self._weigh(self._me, number, numbered[number][1].shared),
            [entry.number for entry in merged.values() if entry.adopted],
        )
        before = self.entries
        self.entries = dict(numbered[number] for number in kept)
        self.in_links.tell_all(before, self.entries)
        return self.entries.keys() != before.keys()

    def _weigh(self, at: int, other: int, shared: int) -> int:
        if self._ctx.config.stan.lean:
            return rules.lean_weight(at, other, shared)
        return _weight(at, other)

    def _shared(self, peer: PeerId) -> int:
        entry = self.entries.get(peer)
        return entry.shared if entry else self._acquaintances.shared_with_me(peer)

    def lose(self, peer: PeerId) -> None:
        """The peer left the topic or cannot be reached."""
        lasts = _BURIED_CYCLES * self._ctx.config.cyclon.cycle_ms
        self._buried[peer] = self._ctx.now + lasts
        self.in_links.forget(peer)
        if self.entries.pop(peer, None) is not None:
            self._soon()
            self.fill()  # by a member that this peer knows, if it knows one

    def leave(self) -> None:
        """This peer leaves the topic, and holds no member any more."""
        self.in_links.tell_all(self.entries, {})

    def heard_from(self, peer: PeerId) -> None:
        """A member spoke for itself."""
        self._buried.pop(peer, None)
        entry = self.entries.get(peer)
        if entry is not None:
            entry.heard = self._ctx.now
            entry.unanswered = 0

    def _soon(self) -> None:
        self._period = 1
        self._due = min(self._due, self._ctx.now + self._ctx.config.stan.period_ms)

    # --- what is due ----------------------------------------------------------------------------

    def run_cycle(self, members: int, linked: Container[PeerId]) -> None:
        """The topic's turn: expire, and send a walk if one is due. `linked` peers are pinged by
        others, so they need not be confirmed."""
        ctx, config = self._ctx, self._ctx.config.stan
        self._expire()
        if config.enabled and config.period_ms:
            self.follow(members)
        slack = ctx.config.cyclon.cycle_ms // 2  # a walk must not slip to the next call
        if config.enabled and config.period_ms and ctx.now >= self._due - slack:
            self._due = ctx.now + self._period * config.period_ms
            self.collect(members)
            self.in_links.new_period(self._neighbours())
            self._confirm(linked)

    def _expire(self) -> None:
        ctx = self._ctx
        for peer in [peer for peer, until in self._buried.items() if until <= ctx.now]:
            del self._buried[peer]
        limit = ctx.now - ctx.config.cyclon.reply_timeout_ms
        for walk in [walk for walk, (_, since) in self._asked.items() if since <= limit]:
            asked, _ = self._asked.pop(walk)
            entry = self.entries.get(asked) if asked is not None else None
            if entry is not None:
                entry.unanswered += 1
                if entry.unanswered >= _UNANSWERED_MAX:
                    ctx.counters["stan_neighbours_silent"] += 1
                    self.lose(entry.contact.peer)

    def _confirm(self, linked: Container[PeerId]) -> None:
        """Ask the neighbour that was not heard from for longest for a sign of life."""
        limit = self._ctx.now - self._ctx.config.stan.confirm_ms
        silent = [e for p, e in self.entries.items() if e.heard <= limit and p not in linked]
        if silent:
            entry = min(silent, key=lambda entry: (entry.heard, entry.number))
            # Put off, so that other silent neighbours are asked before it is asked again.
            entry.heard = self._ctx.now - self._ctx.config.stan.confirm_ms // 2
            self._send_walk(entry.contact, 0, entry.contact.peer)

    # --- walks ----------------------------------------------------------------------------------

    def collect(self, members: int) -> None:
        """Send a walk (Algorithm 2, lines 3 and 4); where there is no view yet, fill it."""
        if not self.entries:
            self.follow(members)
        else:
            first = self._ctx.pick(_WALK, self.contacts())
            self._send_walk(first, self._ctx.config.stan.walk_steps, None)

    def _send_walk(self, to: Contact, steps: int, confirms: PeerId | None) -> None:
        ctx = self._ctx
        walk = ctx.next_serial()
        self._asked[walk] = (confirms, ctx.now)
        topics = self._acquaintances.mine() if ctx.config.stan.lean else []
        ctx.send(to, CollectWalk(self._topic, ctx.me, walk, steps, self.wanted, [], topics))

    def on_walk(self, sender: Contact, message: CollectWalk) -> None:
        """Add what this peer knows and pass the walk on, or answer it (lines 5 to 13)."""
        ctx, origin = self._ctx, message.origin
        self.heard_from(sender.peer)
        if origin.peer != ctx.me.peer:
            self.in_links.on_walk(sender.peer, origin.peer)
            self._acquaintances.learn(origin.peer, message.topics)
            if ctx.config.stan.overhear:
                others = [(candidate.contact, 0) for candidate in message.found]
                if self._consider([(origin, 0), *others]):
                    self._soon()
        found = self._added(message)
        onward = [contact for contact in self.contacts() if contact.peer != origin.peer]
        # No more steps than a walk of this peer's own would take, so that one message of a hostile
        # peer makes no 64 of others.
        left = min(message.steps, ctx.config.stan.walk_steps) - 1
        if left >= 0 and onward:
            walk = replace(message, steps=left, found=found)
            ctx.send(ctx.pick(_WALK, onward), walk)
        elif origin.peer != ctx.me.peer:
            ctx.send(origin, CollectReply(self._topic, message.walk, found))
        else:  # the walk ended where it began
            self.on_reply(ctx.me, CollectReply(self._topic, message.walk, found))

    def _added(self, message: CollectWalk) -> list[Candidate]:
        """What was found so far, this peer and its neighbours: those that rank first at the
        walk's origin. The address of a known peer is taken from the nearest to it."""
        topics, origin = message.topics, _number(message.origin.peer)
        found = {candidate.contact.peer: candidate for candidate in message.found}
        for contact in self.contacts():
            shared = self._acquaintances.shared(contact.peer, topics) if topics else 1
            known = found.get(contact.peer)
            if known is None or known.shared < shared:
                found[contact.peer] = Candidate(contact, shared)
        mine = self._acquaintances.mine() if topics else []
        shared = max(1, sum(topic in topics for topic in mine))
        found[self._ctx.me.peer] = Candidate(self._ctx.me, shared)
        found.pop(message.origin.peer, None)
        places = []
        for peer, candidate in found.items():
            number = _number(peer)
            if topics:
                weight = rules.lean_weight(origin, number, candidate.shared)
            else:
                weight = _weight(origin, number)
            places.append((weight, number, candidate))
        places.sort(key=lambda place: place[:2])
        return [candidate for _, _, candidate in places[: message.wanted]]

    def on_reply(self, sender: Contact, message: CollectReply) -> bool:
        """Take in what a walk brought (lines 14 to 17); returns whether the view changed."""
        asked = self._asked.pop(message.walk, None)
        if asked is None:
            return False
        if sender.peer != self._ctx.me.peer:
            self.heard_from(sender.peer)
        lean = self._ctx.config.stan.lean
        changed = self._consider((c.contact, c.shared if lean else 0) for c in message.found)
        if asked[0] is None:
            longest = self._ctx.config.stan.period_max
            self._period = next_period(self._period, changed, longest)
            self._due = self._ctx.now + self._period * self._ctx.config.stan.period_ms
        return changed

    def on_adopt_me(self, sender: Contact) -> None:
        """Make room for a member that is in nobody's view, so that walks find it again."""
        self.heard_from(sender.peer)
        adopted = sum(entry.adopted for entry in self.entries.values())
        found = self.in_links.can_be_found(sender.peer)
        held = sender.peer in self.entries
        if not held and self.entries and rules.adopts(adopted, self.wanted, found):
            self._ctx.counters["stan_adopted"] += 1
            entry = Entry(sender, self._acquaintances.shared_with_me(sender.peer), self._ctx.now)
            entry.adopted = True
            self._keep({**self.entries, sender.peer: entry})
        else:
            self.in_links.tell(sender, held)

    def on_in_link(self, sender: Contact, message: InLink) -> None:
        """A member took this peer into its view, or dropped it from there."""
        self.heard_from(sender.peer)
        self.in_links.on_notice(sender, message, self._neighbours())
        if not self.in_links.holders:
            self._soon()

    def _neighbours(self) -> list[Contact]:
        """The members in the view, the adopted first, then the lightest."""
        return [entry.contact for entry in self.entries.values()]
