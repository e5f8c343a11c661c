"""Membership: Cyclon in one overlay, the general one or a topic's (Voulgaris, Gavidia, van Steen
2005), and how a peer enters the network.

`Cyclon` keeps a view of at most `view_size` neighbours with ages. Each cycle it exchanges a part of
the view with the oldest neighbour, which leaves the view when asked: if it does not answer, it is
thereby dropped. A newcomer asks any member, which answers at once with a part of its view and
starts random walks; the peer at the end of each walk swaps one entry for the newcomer, so that
in-degrees stay balanced.

`Entrance` brings a peer into the general overlay, brings it in again, and finds the part of the
network that was lost. It remembers the contacts that it was given, the peers that spoke to it
lately, a few met over a long time, and those that it was told of. With no neighbour left, it asks
some of them to let it in, and for each that does not answer the next one. It goes on asking while
it has only one or two neighbours: if its request to enter was lost, those may be newcomers that
entered by it, and know no other peer either. Even with many neighbours it exchanges views with a
remembered peer now and then, and with a thin view in every cycle: after a long partition both sides
have dropped each other from all views, and nothing else would bring them together again.

Invariants: no self, no duplicate, never more than `view_size`, every peer in the view has a
known address.

Deviation: a neighbour that answered comes back into the view if a slot is left empty. In large
overlays none is; in small ones, whose members all fit a view, pure swapping loses neighbours.

Deviation: the asked member answers a join at once with a part of its view (the paper's newcomer
waits for the ends of the walks), because a subscription should not wait for the slowest;
and it starts a few short walks, not one of five steps per view slot: each step may cost a TLS
handshake. The newcomer fills its view by an exchange with a peer that it was told of, which costs
one handshake, and its own exchanges raise its in-degree to the mean. Measured with 300 peers that
enter by one within 1.5 s: after six walks of five steps each peer is known by at least 6 others one
cycle later, at 11.2 connections per peer; after two walks of one step and an exchange by at least
3, at 5.3; after ten cycles the degrees are the same (deviation 5.3 and 6.0), and longer walks
change nothing.

Deviation: Cyclon believes all that it is told, and a few hostile peers own every view within some
cycles. Here a message counts for as many entries as an exchange carries, entries sent unasked
replace only a few between two exchanges of this peer's own, and every second exchange goes to a
peer of a sample that cannot be pushed aside (`defence.py`), which also enters the view. An exchange
must stay a swap all the same, or peers fall out of all views: the reply says how many of the
asker's entries were taken, and the asker gives up no more. A peer takes without that bound before
its first cycle. Measured with 60 peers that enter by one within a second, one cycle later: with the
bound alone 18 to 25 are in no general view, in-degrees deviate by 23; with both by 14, each is in
three views or more; without any bound by 12.

Deviation: some names that others tell of belong to no peer. A peer that found two such names within
a minute takes in, and passes on, only peers that have spoken for themselves, until it has found no
further one for two minutes (`Informants` in `defence.py`); an honest network exchanges as the paper
says, at no cost. Measured with 10 to 30 % of all peers poisoning views of 5, 12 and 30 honest ones,
21 runs: 3 to 47 % of the entries named nobody, and less than 2 % do now.

Deviation: in Cyclon the end of a join walk takes the newcomer in on the walk's word. That is safe
in the general overlay, which all peers are in; in a topic's the walk may name a peer that is no
member and would be sent the topic's events. So the end of a walk in a topic asks the newcomer for
an exchange, and takes it in if it answers as a member. That costs a message more than the gift of
an entry, and brings a view.

Deviation: a view holds only a few peers of one address (`Crowds` in `defence.py`).

Deviation: neither Cyclon nor TERA looks for a lost part of the network; both assume that the
general overlay never splits for longer than views remember.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from typing import Annotated, ClassVar, TypeAlias

from msgspec import Meta, Struct

from weft.bounded import BoundedDict
from weft.documents.run import Statement
from weft.ids import GENERAL, Contact, PeerId, Topic, WireTopic, network_of
from weft.protocol.context import Context
from weft.protocol.defence import Crowds, Informants, Sampler
from weft.protocol.seam import Millis
from weft.protocol.settings import Settings, require
from weft.protocol.wire import LIST_MAX, Counter, Message, Statements
from weft.rules import cyclon as rules
from weft.rules.draw import absorb, below, key_of, slots_in, stream_of, subset_mask


class Descriptor(Struct, frozen=True, array_like=True, gc=False):
    """An entry of a view: a peer and how many cycles ago it last vouched for itself."""

    contact: Contact
    age: Annotated[int, Meta(ge=0, le=1 << 16)]


DESCRIPTORS_MAX = 128
Descriptors: TypeAlias = Annotated[list[Descriptor], Meta(max_length=DESCRIPTORS_MAX)]


MEMBERS_MAX = (1 << 32) - 1


MemberCount: TypeAlias = Annotated[int, Meta(ge=0, le=MEMBERS_MAX)]
"""How many peers a topic has, by an estimate that members pass on in exchanges and adverts."""


class OverlayNews(Struct, frozen=True, array_like=True, gc=False):
    """What every view exchange in a topic overlay carries along: the overlay's id (so that ids
    converge), the best size estimate known and the fingerprint of recent events."""

    overlay: Counter = 0
    size: MemberCount = 0  # estimated members, 0 when nothing is known
    size_ms: Counter = 0  # age of that estimate
    recent: Counter = 0  # fingerprint of what has been seen (protocol/recent.py)


NO_NEWS = OverlayNews()


class Advert(Struct, frozen=True, array_like=True, gc=False):
    """A topic of the sender, its overlay and how many members it has (TERA, Section 3)."""

    topic: WireTopic
    overlay: Counter
    popularity: Annotated[int, Meta(ge=1, le=MEMBERS_MAX)]


AdvertList: TypeAlias = Annotated[list[Advert], Meta(max_length=LIST_MAX)]
"""The topics of a sender, which ride on exchanges in the general overlay."""
Riders: TypeAlias = Callable[[Contact], list[Advert]]
"""The adverts to send along to a peer that views are exchanged with."""


class ShuffleRequest(Message, frozen=True, tag=1):
    """A view exchange: takes these entries, and answers with others."""

    asks: ClassVar[bool] = True

    topic: WireTopic
    tick: Counter
    descriptors: Descriptors
    news: OverlayNews = NO_NEWS
    # Fingerprints of topics in the asker's access point table: a uniform sample of the active
    # topics, from which the asked peer estimates how many there are (TERA 4.2.2, footnote 7).
    topics_sample: Annotated[list[Counter], Meta(max_length=16)] = []
    adverts: AdvertList = []


class ShuffleReply(Message, frozen=True, tag=2):
    """Answers `ShuffleRequest` with entries of the asked peer's view."""

    topic: WireTopic
    tick: Counter
    descriptors: Descriptors
    news: OverlayNews = NO_NEWS
    member: bool = True  # False: the asked peer is not in this overlay (any more)
    # How many of the asker's descriptors were taken, counted from the last, which is the asker's
    # own: what was not taken stays in the asker's view.
    taken: Annotated[int, Meta(ge=0, le=DESCRIPTORS_MAX)] = DESCRIPTORS_MAX
    adverts: AdvertList = []


class JoinRequest(Message, frozen=True, tag=3):
    """Asks a member to let the sender into the overlay."""

    asks: ClassVar[bool] = True

    topic: WireTopic


class JoinReply(Message, frozen=True, tag=4):
    """Answers `JoinRequest` with a part of the member's view."""

    topic: WireTopic
    member: bool  # False: the asked peer is not in this overlay
    news: OverlayNews = NO_NEWS
    descriptors: Descriptors = []
    seen: Statements = []  # what was published before: the joiner starts after it


class JoinWalk(Message, frozen=True, tag=5):
    """A random walk that brings a newcomer into the view of the peer at its end."""

    topic: WireTopic
    joiner: Contact
    steps: Annotated[int, Meta(ge=0, le=64)]


class JoinGift(Message, frozen=True, tag=6):
    """From the end of a join walk: the view entry that made room for the joiner."""

    topic: WireTopic
    descriptor: Descriptor


class LeaveNotice(Message, frozen=True, tag=7):
    """The sender is no member of the topic; of the general overlay: it leaves the network."""

    topic: WireTopic


REJOIN = "rejoin"
"""The timer after which a peer asks again to be let in."""


class Config(Settings):
    """View exchange, in the general overlay and in every topic overlay."""

    cycle_ms: Millis = 10_000  # measured: see docs/operating.md, what an idle peer costs
    view_size: int = 20  # paper
    shuffle_length: int = 8  # paper (Cyclon's own experiments)
    reply_timeout_ms: Millis = 5_000  # guess: generous for a handshake over a slow path
    join_walks: int = 2  # measured: of 20 in the paper; see protocol/membership.py
    join_walk_steps: int = 1  # measured: of about 5 in the paper; see there
    stable_period_max: int = 4  # guess: a quiet topic exchanges views every so many cycles
    exchanges_per_cycle_max: int = 64  # guess: topics that exchange views in one cycle

    def __post_init__(self) -> None:
        require(self.cycle_ms >= 1, "cyclon.cycle_ms must be at least 1")
        require(2 <= self.view_size <= 63, "cyclon.view_size must be 2 to 63")
        require(
            1 <= self.shuffle_length <= self.view_size,
            "cyclon.shuffle_length must be between 1 and the view size",
        )
        require(self.reply_timeout_ms >= 1, "cyclon.reply_timeout_ms must be at least 1")
        require(0 <= self.join_walks <= 63, "cyclon.join_walks must be 0 to 63")
        require(0 <= self.join_walk_steps <= 64, "cyclon.join_walk_steps must be 0 to 64")
        require(self.stable_period_max >= 1, "cyclon.stable_period_max must be at least 1")
        require(self.exchanges_per_cycle_max >= 1, "cyclon.exchanges_per_cycle_max must be >= 1")


_WALK = stream_of("cyclon.walk")
_JOIN = stream_of("cyclon.join")
_FIRST = stream_of("cyclon.first")
_FILLINGS_MAX = 3
"""measured: exchanges of a newcomer before its cycles; 400 peers that enter at once have full views
after 17 s, with one exchange after 21."""
_SAMPLE = stream_of("cyclon.sample")
_GONE_MAX = 64
"""guess: peers remembered as gone, per overlay."""
_LET_IN_MAX = 64
"""guess: newcomers remembered, per overlay."""
ANSWER = "cyclon.answer"
ASK = "cyclon.ask"
_ENTRY = stream_of("entering.entry")
_MEET = stream_of("entering.meet")
_REMEMBER = stream_of("entering.remember")
_ASKED_AT_ONCE = 3
"""guess: known peers asked at once."""
_PAUSE_FIRST_MS = 500
"""guess: first pause before asking again; doubles up to the cycle."""
_GIVEN_MAX = 64
"""guess: contacts remembered of those the user or the driver gave."""
_HOPEFUL_ASKS = 3
"""guess: with pauses of 0.5, 1 and 2 s, a subscriber waits 3.5 s for a way into the network."""
_THIN = 3
"""guess: with fewer neighbours than that a peer may be on an island of newcomers."""
_MET_MAX = 32
"""guess: peers remembered from earlier."""
_WORKED_MAX = 64
"""guess: peers remembered of those that spoke lately."""
_HEARD_OF_MAX = 128
"""guess: peers remembered that others told of. After a crash of 95 % some six of them are left,
whereas a view of 20 and some thirty that spoke are all dead in one case of twelve."""
_ASKED_MAX = 32
"""guess: peers remembered that were asked to let this one in."""
_FAILED_MAX = 128
"""guess: peers remembered as silent when they were asked; all others are asked before them."""
_EVERY_CYCLES = 4
"""guess: cycles between two times at which a neighbour is remembered and a remembered peer is asked
for an exchange. With 32 places, half of the remembered are still there after about 90 cycles."""


_ON_THEIR_WORD = 4
"""guess: entries taken from others' requests and walks between two exchanges of this peer's own,
half of what an exchange carries; an honest peer is asked about once in that time."""
_SAMPLES = 8
"""guess: places of the sample (`defence.py`); Brahms has about the cube root of all peers."""
_SAMPLER = stream_of("cyclon.sampler")
_WAITING_MAX = 8
"""guess: peers that wait for their answer before they enter a view, as many as an exchange names.
"""


class _Asked:
    """An exchange waiting for its reply."""

    __slots__ = ("contact", "known", "sent", "since")

    def __init__(self, contact: Contact, known: bool, sent: list[PeerId], since: Millis) -> None:
        self.contact = contact
        self.known = known  # it was in the view, and comes back if it answers
        self.sent = sent
        self.since = since


class Cyclon:
    """The view of one peer in one overlay."""

    __slots__ = (
        "_answer",
        "_ask",
        "_asked",
        "_contacts",
        "_ctx",
        "_cycles",
        "_fillings",
        "_formed",
        "_gone",
        "_let_in",
        "_sampler",
        "_taken",
        "_waiting",
        "ages",
        "informants",
        "peers",
        "tick",
        "topic",
    )

    def __init__(self, ctx: Context, topic: Topic, informants: Informants | None = None) -> None:
        """`informants`: what all views of this peer know of the peers that others told of."""
        self._ctx = ctx
        self.topic = topic
        self.informants = informants if informants is not None else Informants(ctx)
        self.peers: list[PeerId] = []
        self.ages: list[int] = []
        self.tick = 0
        self._cycles = 0  # exchanges of this peer's own accord; others can force more
        self._contacts: dict[PeerId, Contact] = {}
        self._asked: dict[int, _Asked] = {}
        self._fillings = 0  # exchanges made because this peer had just joined
        # Peers that left lately, and until which cycle that counts.
        self._gone: BoundedDict[PeerId, int] = BoundedDict(_GONE_MAX)
        # Newcomers that asked lately, and when: one that asks again starts no further walks.
        self._let_in: BoundedDict[PeerId, Millis] = BoundedDict(_LET_IN_MAX)
        self._sampler = Sampler(ctx.key(_SAMPLER ^ stream_of(topic), n) for n in range(_SAMPLES))
        self._formed = False  # this peer has begun its cycles here
        self._taken = 0  # entries, on others' word, since this peer's latest exchange
        # Peers that others told of in times of doubt: they are pinged, and taken in if they answer.
        self._waiting: BoundedDict[PeerId, Contact] = BoundedDict(_WAITING_MAX)
        self._ask = stream_of(ASK, topic)
        self._answer = stream_of(ANSWER, topic)

    # --- the view --------------------------------------------------------------------------------

    def __len__(self) -> int:
        return len(self.peers)

    @property
    def knows_nobody(self) -> bool:
        return not self.peers and not any(asked.known for asked in self._asked.values())

    def contacts(self) -> list[Contact]:
        """All neighbours; in an overlay of two, the one that is being asked counts too."""
        if not self.peers:
            return [asked.contact for asked in self._asked.values() if asked.known]
        return [self._contacts[peer] for peer in self.peers]

    def sample(self, count: int) -> list[Contact]:
        """Distinct neighbours, every subset equally likely (the peer sampling service)."""
        if not self.peers:
            return self.contacts()[:count]
        mask = subset_mask(self._ctx.next_key(_SAMPLE), len(self.peers), count)
        return [self._contacts[self.peers[slot]] for slot in slots_in(mask)]

    def oldest(self, count: int) -> list[Contact]:
        """The neighbours of which nothing was heard for longest."""
        slots = sorted(range(len(self.peers)), key=lambda slot: -self.ages[slot])
        return [self._contacts[self.peers[slot]] for slot in slots[:count]]

    def known(self) -> list[Contact]:
        """All neighbours, and the peers of the sample."""
        if not self._ctx.config.defence.views:
            return self.contacts()
        return list({one.peer: one for one in (*self.contacts(), *self._strays())}.values())

    def _strays(self) -> list[Contact]:
        """Peers of the sample that the view does not hold."""
        return [one for one in self._sampler.contacts() if one.peer not in self.peers]

    def _on_their_word(self, entries: int) -> int:
        """How many of `entries` that another peer sent unasked are taken: half of those that may
        still be taken before this peer's next exchange, so that there is room for several askers.
        A view that is still forming takes as many as one message may bring."""
        cyclon = self._ctx.config.cyclon
        if not self._ctx.config.defence.views:
            return entries
        if not self._formed or 2 * len(self.peers) < cyclon.view_size:
            return min(entries, cyclon.shuffle_length)
        return min(entries, (max(0, _ON_THEIR_WORD - self._taken) + 1) // 2)

    def neighbour(self, but: Collection[PeerId] = ()) -> Contact | None:
        """One random neighbour, for a step of a walk that shall not go back to `but`."""
        left = [peer for peer in self.peers if peer not in but] if but else self.peers
        if left:
            return self._contacts[self._ctx.pick(_WALK, left)]
        known = self.contacts() if not self.peers else ()
        return next((contact for contact in known if contact.peer not in but), None)

    def add(self, contact: Contact, age: int = 0) -> bool:
        """Take a peer in where there is room; returns whether the view changed."""
        if (
            contact.peer == self._ctx.me.peer
            or len(self.peers) >= self._ctx.config.cyclon.view_size
            or contact.peer in self.peers
            or contact.peer in self._gone
            or not self._fits(self._crowds(), contact)
        ):
            return False
        self._contacts[contact.peer] = contact
        self.peers.append(contact.peer)
        self.ages.append(age)
        return True

    def _crowds(self) -> Crowds:
        return Crowds(self._ctx, (self._contacts[peer] for peer in self.peers))

    def _fits(self, crowds: Crowds, contact: Contact) -> bool:
        """Whether the view may hold one more peer of this address. For a peer that spoke for itself
        one is dropped whose address is only others' word."""
        if crowds.takes(contact):
            return True
        if not self.informants.is_proven(contact):
            return False
        where = network_of(contact.address)
        for peer in self.peers:
            entry = self._contacts[peer]
            if network_of(entry.address) == where and not self.informants.is_proven(entry):
                rules.take_out(self.peers, self.ages, self.peers.index(peer))
                return True
        return False

    def bury(self, peer: PeerId) -> None:
        """The peer said that it left: others' old entries must not bring it back."""
        self.remove(peer)
        # Others' entries of a peer that is gone age out within about `view_size` exchanges.
        self._gone[peer] = self._cycles + self._ctx.config.cyclon.view_size

    def welcome(self, contact: Contact) -> bool:
        """Take in, where there is room, a peer that spoke for itself."""
        self._heard_from(contact.peer)
        return self.add(contact)

    def _heard_from(self, peer: PeerId) -> None:
        """A peer that speaks for itself is (again) a member."""
        if self._gone:
            self._gone.pop(peer, None)

    def _met(self, contact: Contact) -> None:
        """A peer spoke for itself, from where it listens."""
        self._heard_from(contact.peer)
        if self._ctx.config.defence.views and contact.peer != self._ctx.me.peer:
            self.informants.spoke(contact)
            self._sampler.meet(contact)

    def remove(self, peer: PeerId) -> bool:
        """Drop a peer that left or does not answer; returns whether it was a neighbour. One that is
        being asked for an exchange is in the view no more, but was."""
        self._sampler.forget(peer)
        self._waiting.pop(peer, None)
        ticks = [tick for tick, asked in self._asked.items() if asked.contact.peer == peer]
        was_asked = any(self._asked[tick].known for tick in ticks)
        for tick in ticks:
            del self._asked[tick]
        if peer not in self.peers:
            return was_asked
        rules.take_out(self.peers, self.ages, self.peers.index(peer))
        self._forget_others()
        return True

    # --- exchanges: asking -----------------------------------------------------------------------

    def exchange(
        self, news: OverlayNews, topics_sample: list[int], riders: Riders | None = None
    ) -> None:
        """Run one cycle: ask the oldest neighbour for an exchange, unless an earlier request has
        not even left because this side is making too many connections."""
        self.tick += 1
        self._cycles += 1
        self._taken = 0
        self._formed = True
        self._expire()
        if self.informants.doubted:
            self.admit()
            self.informants.look_through(self._contacts[peer] for peer in self.peers)
        if not self.peers:
            return
        self.ages = rules.aged(self.ages)
        if any(self._ctx.is_stalled(asked.contact.peer) for asked in self._asked.values()):
            self._ctx.counters["exchanges_put_off"] += 1
            return
        strays = self._strays() if self.tick % 2 else []
        if strays:
            contact = self._ctx.pick(_SAMPLER, strays)
        else:
            contact = self._contacts[self.peers[rules.oldest_slot(self.ages)]]
        adverts = riders(contact) if riders is not None else []
        self._ask_for_exchange(contact, news, topics_sample, adverts)

    def exchange_with(self, contact: Contact, news: OverlayNews) -> None:
        """Force a view exchange with this peer (TERA's ForceViewExchange).

        Strangers can make us do this, so never twice at once with one peer, nor with very many.
        """
        self._expire()
        if (
            contact.peer == self._ctx.me.peer
            or len(self._asked) >= self._ctx.config.cyclon.view_size
            or any(asked.contact.peer == contact.peer for asked in self._asked.values())
        ):
            return
        self.tick += 1
        self._ask_for_exchange(contact, news, [], [])

    def _ask_for_exchange(
        self,
        contact: Contact,
        news: OverlayNews,
        topics_sample: list[int],
        adverts: list[Advert],
    ) -> None:
        ctx = self._ctx
        known = contact.peer in self.peers
        if known:
            rules.take_out(self.peers, self.ages, self.peers.index(contact.peer))
        wanted = ctx.config.cyclon.shuffle_length - 1
        slots = self._slots_to_send(ctx.key(self._ask, self.tick), wanted)
        sent = [self.peers[slot] for slot in slots]
        descriptors = [Descriptor(self._contacts[self.peers[s]], self.ages[s]) for s in slots]
        descriptors.append(Descriptor(ctx.me, 0))
        self._asked[self.tick] = _Asked(contact, known, sent, ctx.now)
        request = ShuffleRequest(self.topic, self.tick, descriptors, news, topics_sample, adverts)
        ctx.send(contact, request)

    def on_reply(self, sender: Contact, message: ShuffleReply) -> bool:
        """Merge the answer to an exchange of ours; False if it answers none."""
        asked = self._asked.get(message.tick)
        if asked is None or asked.contact.peer != sender.peer:
            return False
        del self._asked[message.tick]
        self._met(sender)
        received = message.descriptors
        if self._ctx.config.defence.views:
            received = received[: self._ctx.config.cyclon.shuffle_length]
            if not asked.known:
                received = [Descriptor(sender, 0), *received]
        if not message.taken:  # nothing was swapped: the asked peer keeps its place, too
            self.welcome(sender)
        swapped = max(0, message.taken - 1)  # besides this peer's own entry
        self._merge(sender, received, asked.sent[max(0, len(asked.sent) - swapped) :])
        self.welcome(sender)
        return True

    def _expire(self) -> None:
        """Give up on exchanges without a reply; the asked peer has left the view already."""
        for peer in [peer for peer, until in self._gone.items() if until <= self._cycles]:
            del self._gone[peer]
        ctx = self._ctx
        limit_ms = ctx.config.cyclon.reply_timeout_ms
        for tick, asked in list(self._asked.items()):
            if ctx.has_had_time(asked.contact.peer, asked.since, limit_ms):
                self._sampler.forget(asked.contact.peer)
                del self._asked[tick]
                ctx.counters["exchanges_unanswered"] += 1

    # --- exchanges: answering --------------------------------------------------------------------

    def on_request(
        self,
        sender: Contact,
        message: ShuffleRequest,
        news: OverlayNews,
        riders: Riders | None = None,
    ) -> None:
        ctx = self._ctx
        self._met(sender)
        asker = int.from_bytes(sender.peer[:8], "big")
        key = key_of(ctx.seed, self._answer, asker, message.tick)
        wanted = ctx.config.cyclon.shuffle_length
        slots = self._slots_to_send(key, wanted)
        sent = [self.peers[slot] for slot in slots]
        descriptors = [Descriptor(self._contacts[self.peers[s]], self.ages[s]) for s in slots]
        # The asker itself comes last in its list, and is the only one that is there for sure.
        taken = self._on_their_word(len(message.descriptors))
        self._taken += taken
        # In times of doubt entries may be refused below, so the asker is to keep its own.
        kept = min(taken, 1) if self.informants.doubted else taken
        adverts = riders(sender) if riders is not None else []
        reply = ShuffleReply(
            self.topic, message.tick, descriptors, news, taken=kept, adverts=adverts
        )
        ctx.send(sender, reply)
        self._merge(sender, message.descriptors[len(message.descriptors) - taken :], sent)

    def _merge(self, sender: Contact, received: Iterable[Descriptor], sent: list[PeerId]) -> None:
        contacts = self._contacts
        entries = []
        for descriptor in self._believed(sender, received):
            contact = descriptor.contact
            # A neighbour's address is changed by that neighbour's own word alone.
            if contact.peer == sender.peer or contact.peer not in self.peers:
                contacts[contact.peer] = contact
            age = descriptor.age
            entries.append((contact.peer, age if age < rules.AGE_MAX else rules.AGE_MAX))
        ctx = self._ctx
        view_size = ctx.config.cyclon.view_size
        rules.merge(self.peers, self.ages, entries, sent, ctx.me.peer, view_size)
        self._forget_others()

    # --- what others tell of ---------------------------------------------------------------------

    def _believed(self, informant: Contact, received: Iterable[Descriptor]) -> list[Descriptor]:
        """The entries of another's message that count: in times of doubt (`defence.py`) those of
        peers that have spoken for themselves. Some of the others are pinged and wait."""
        informants, doubted = self.informants, self.informants.doubted
        wary = self._ctx.config.defence.views
        known = {self._ctx.me.peer, informant.peer, *self.peers}
        crowds, kept = self._crowds(), []
        for descriptor in received:
            contact = descriptor.contact
            if contact.peer in self._gone:
                continue
            if contact.peer not in self.peers and not self._fits(crowds, contact):
                continue
            if wary and contact.peer not in known and not informants.is_proven(contact):
                if doubted:
                    if informants.try_name(informant.peer, contact):
                        self._waiting[contact.peer] = contact
                    continue
                informants.told(informant.peer, contact)
            kept.append(descriptor)
        return kept

    def admit(self) -> None:
        """Take in, where there is room, the peers that waited and have answered."""
        for contact in list(self._waiting.values()):
            if self.informants.is_proven(contact):
                del self._waiting[contact.peer]
                self.add(contact)

    def _slots_to_send(self, key: int, wanted: int) -> list[int]:
        """The entries that others are told of: in times of doubt only the proven ones."""
        if not self.informants.doubted:
            return rules.slots_to_send(key, len(self.peers), wanted)
        proven = [
            slot
            for slot, peer in enumerate(self.peers)
            if self.informants.is_proven(self._contacts[peer])
        ]
        return [proven[place] for place in rules.slots_to_send(key, len(proven), wanted)]

    def _forget_others(self) -> None:
        """Keep addresses only of peers in the view; rebuilt seldom, since it costs a pass."""
        if len(self._contacts) > 2 * len(self.peers) + 16:
            self._contacts = {peer: self._contacts[peer] for peer in self.peers}

    # --- joining ---------------------------------------------------------------------------------

    def ask_to_join(self, contact: Contact) -> None:
        self._ctx.send(contact, JoinRequest(self.topic))

    def on_join_request(self, sender: Contact, news: OverlayNews, seen: list[Statement]) -> None:
        """Answer a newcomer at once, and walk its descriptor into the overlay."""
        ctx = self._ctx
        self._met(sender)
        slots = self._slots_to_send(ctx.next_key(_SAMPLE), ctx.config.cyclon.shuffle_length)
        given = [Descriptor(ctx.me, 0)]
        given += [
            Descriptor(self._contacts[self.peers[slot]], self.ages[slot])
            for slot in slots
            if self.peers[slot] != sender.peer
        ]
        ctx.send(sender, JoinReply(self.topic, True, news, given, seen))
        if not self._asks_again(sender.peer):
            steps = ctx.config.cyclon.join_walk_steps
            for contact in self.sample(ctx.config.cyclon.join_walks):
                if contact.peer != sender.peer:
                    ctx.send(contact, JoinWalk(self.topic, sender, steps))
        self.add(sender)

    def _asks_again(self, newcomer: PeerId) -> bool:
        """Whether this newcomer asked a moment ago: the answer is late, or lost, and its walks are
        on their way."""
        before = self._let_in.get(newcomer)
        self._let_in.renew(newcomer, self._ctx.now)
        return before is not None and self._ctx.now - before < self._ctx.config.cyclon.cycle_ms

    def on_join_reply(self, sender: Contact, message: JoinReply) -> None:
        for descriptor in self._believed(sender, message.descriptors):
            self.add(descriptor.contact, min(descriptor.age, rules.AGE_MAX))

    def fill_up(self, told: Contact, news: OverlayNews) -> None:
        """After a join: where there is room, exchange views at once with a peer that `told` named,
        and then perhaps with another one. An exchange costs one connection, as a step of a walk
        does, and brings more entries; in a crowd the first peers asked know few others."""
        others = [peer for peer in self.peers if peer != told.peer]
        missing = len(self.peers) < self._ctx.config.cyclon.view_size
        if others and missing and self._fillings < _FILLINGS_MAX:
            self._fillings += 1
            self.exchange_with(self._contacts[self._ctx.pick(_FIRST, others)], news)

    def on_join_walk(self, sender: Contact, message: JoinWalk, news: OverlayNews = NO_NEWS) -> None:
        left = message.steps
        if self._ctx.config.defence.rates:  # no farther than this peer's own walks go
            left = min(left, max(1, self._ctx.config.cyclon.join_walk_steps))
        # One more for the newcomer, which is told at the end.
        if message.joiner.peer == self._ctx.me.peer or not self._ctx.carries_walk(sender, left + 1):
            return
        if left > 0:
            onward = self.neighbour()
            if onward is not None and onward.peer != message.joiner.peer:
                walk = JoinWalk(message.topic, message.joiner, left - 1)
                self._ctx.send(onward, walk)
                return
        if self.topic != GENERAL and self._ctx.config.defence.claims:
            self._ask_joiner(sender, message.joiner, news)
            return
        self._heard_from(message.joiner.peer)
        if self._believed(sender, [Descriptor(message.joiner, 0)]):
            self._end_join_walk(message.joiner)

    def _ask_joiner(self, informant: Contact, joiner: Contact, news: OverlayNews) -> None:
        """Swap entries with the newcomer, which thereby says that it is in this overlay."""
        informants = self.informants
        if joiner.peer in self.peers or not self._on_their_word(1):
            return
        if self._ctx.config.defence.views and not informants.is_proven(joiner):
            if informants.doubted and not informants.try_name(informant.peer, joiner):
                return
            informants.told(informant.peer, joiner)
        self._taken += 1
        self.exchange_with(joiner, news)

    def _end_join_walk(self, joiner: Contact) -> None:
        """Swap one entry for the newcomer and give it away, as in Cyclon's join."""
        ctx = self._ctx
        if joiner.peer in self.peers or not self._on_their_word(1):
            return
        self._taken += 1
        if self.add(joiner):
            ctx.send(joiner, JoinGift(self.topic, Descriptor(ctx.me, 0)))
            return
        slot = below(absorb(ctx.next_key(_JOIN), 0), len(self.peers))
        given = Descriptor(self._contacts[self.peers[slot]], self.ages[slot])
        self._contacts[joiner.peer] = joiner
        self.peers[slot] = joiner.peer
        self.ages[slot] = 0
        self._forget_others()
        ctx.send(joiner, JoinGift(self.topic, given))

    def on_join_gift(self, sender: Contact, message: JoinGift) -> None:
        for given in self._believed(sender, [message.descriptor]):
            self.add(given.contact, min(given.age, rules.AGE_MAX))


class Entrance:
    """The peers that this one knows beyond its general view, to enter the network by."""

    def __init__(self, ctx: Context, view: Cyclon) -> None:
        self._ctx = ctx
        self._view = view
        self._given: BoundedDict[PeerId, Contact] = BoundedDict(_GIVEN_MAX)
        self._met: list[Contact] = []
        self._worked: BoundedDict[PeerId, Contact] = BoundedDict(_WORKED_MAX)
        self._failed: BoundedDict[PeerId, None] = BoundedDict(_FAILED_MAX)  # the latest last
        self._asked: BoundedDict[PeerId, None] = BoundedDict(_ASKED_MAX)  # answers may still come
        self._heard_of: BoundedDict[PeerId, Contact] = BoundedDict(_HEARD_OF_MAX)
        self._pause_ms = _PAUSE_FIRST_MS
        self._asks = 0  # since this peer last had a neighbour
        self._serial = 0
        self._usual = 0  # the most peers lately in the view; falls by one in each cycle

    @property
    def hopeful(self) -> bool:
        """Whether known peers were asked just now and may still answer."""
        return self._view.knows_nobody and 0 < self._asks <= _HOPEFUL_ASKS

    @property
    def needs_any(self) -> bool:
        """Whether there are so few neighbours that they may know no other peer."""
        return len(self._view.peers) < _THIN

    def enter(self, contacts: tuple[Contact, ...]) -> None:
        """Ask to be let in by peers that the user or the driver knows."""
        for contact in contacts:
            if contact.peer != self._ctx.me.peer:
                self._given[contact.peer] = contact
        self.ask()

    def ask(self) -> None:
        """Ask some known peers to let us in, and again later if none answers."""
        ctx = self._ctx
        candidates = self._candidates()
        if not candidates:
            return
        for contact in candidates:
            if contact.peer not in self._asked or not ctx.is_stalled(contact.peer):
                self._ask(contact)
        self._asks += 1
        ctx.counters["rejoins"] += 1
        self._serial = ctx.next_serial()
        ctx.set_timer(self._pause_ms, REJOIN, GENERAL, self._serial)
        self._pause_ms = min(self._pause_ms * 2, max(self._pause_ms, ctx.config.cyclon.cycle_ms))

    def _ask(self, contact: Contact) -> None:
        self._asked.renew(contact.peer, None)
        self._view.ask_to_join(contact)

    def _candidates(self) -> list[Contact]:
        """Some peers to ask: known ones that were not silent; if they are too few, some that others
        told of; then the ones that have been silent for longest."""
        ctx, known = self._ctx, self._forgotten()
        chosen: list[Contact] = []
        untried = [contact for contact in known if contact.peer not in self._failed]
        shunned = {*self._view.peers, *self._asked, *(contact.peer for contact in known)}
        hearsay = [one for peer, one in self._heard_of.items() if peer not in shunned]
        for left in ([one for one in untried if one.peer not in self._asked], hearsay):
            while left and len(chosen) < _ASKED_AT_ONCE:
                contact = ctx.pick(_ENTRY, left)
                left.remove(contact)
                chosen.append(contact)
        if len(chosen) < _ASKED_AT_ONCE:
            order = {peer: place for place, peer in enumerate((*self._failed, *self._asked), 1)}
            rest = [contact for contact in known if contact not in chosen]
            rest.sort(key=lambda one: order.get(one.peer, 0))
            chosen += rest[: _ASKED_AT_ONCE - len(chosen)]
        return chosen

    def worked(self, contact: Contact) -> None:
        """A peer spoke for itself."""
        self._failed.pop(contact.peer, None)
        self._asked.pop(contact.peer, None)
        if contact.address:
            self._worked.renew(contact.peer, contact)

    def heard_of(self, descriptors: Iterable[Descriptor]) -> None:
        """Others told of these peers; they stay in the view for a while at best."""
        for descriptor in descriptors:
            contact = descriptor.contact
            if contact.peer != self._ctx.me.peer:
                self._heard_of.renew(contact.peer, contact)

    def on_peer_failed(self, peer: PeerId) -> None:
        """A peer is lost, or has not answered: if it was asked to let this one in, ask another."""
        self._heard_of.pop(peer, None)
        if peer in self._given or peer in self._worked or any(m.peer == peer for m in self._met):
            self._failed.renew(peer, None)
        if self._asked.pop(peer, 0) is None and self.needs_any:
            tried = {*self._failed, *self._asked}
            untried = [one for one in self._candidates() if one.peer not in tried]
            for contact in untried[:1]:
                self._ask(contact)

    @property
    def is_thin(self) -> bool:
        """Whether the view has lately lost more than half of its peers."""
        return 2 * len(self._view.peers) < self._usual

    def on_timer(self, serial: int) -> None:
        if serial == self._serial and self.needs_any:
            self.ask()

    def on_neighbours(self) -> None:
        self._asks = 0
        self._pause_ms = _PAUSE_FIRST_MS

    def run_cycle(self, cycle: int) -> None:
        """Remember a neighbour, and exchange views with a known peer that the view has lost."""
        self._usual = max(len(self._view.peers), self._usual - 1)
        due = (cycle + self._ctx.number) % _EVERY_CYCLES == 0
        if due:
            self._remember()
        elif not self.is_thin:
            return
        forgotten = self._forgotten()
        if forgotten:
            self._view.exchange_with(self._ctx.pick(_MEET, forgotten), NO_NEWS)

    def _forgotten(self) -> list[Contact]:
        """Known peers that the view does not hold."""
        known = {one.peer: one for one in (*self._met, *self._worked.values())} | self._given
        return [contact for peer, contact in known.items() if peer not in self._view.peers]

    def _remember(self) -> None:
        neighbour = self._view.neighbour()
        if neighbour is None or any(met.peer == neighbour.peer for met in self._met):
            return
        if len(self._met) >= _MET_MAX:
            self._met.remove(self._ctx.pick(_REMEMBER, self._met))
        self._met.append(neighbour)
