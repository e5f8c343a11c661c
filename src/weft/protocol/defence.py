"""What several layers use against hostile peers: settings, and small memories.

`Config` switches the defences, each by itself. All are on; the lab's attack rows switch one off at
a time, to show what it is for.

`Silence` judges links by what they bring (GossipSub v1.1, Vyzovitis et al. 2020, Section 5.1, whose
score counts first deliveries and broken promises). In a push tree only one link brings an event
first, so first deliveries alone would punish the other links: here a neighbour is *heard* if it
pushes, repeats or announces an event that came here lately. Words about events that never were, or
that all have had for long, cost a liar nothing, and do not count. A neighbour is a black hole, or
as harmful, if it says nothing over a lazy link of many events that came over other links, or if it
said nothing of events that had to be repaired. So is a neighbour that announces events and does not
send them when it is asked (P7 there: broken promises).

`Sampler` is a uniform sample of the peers that spoke for themselves (Brahms: Bortnikov, Gurevich,
Keidar, Kliot, Shraer 2009, Section 4.2). Each place keeps the peer whose id has the smallest hash
under a key of its own, so a peer that speaks a thousand times is in it no more likely than one that
speaks once. Where 30 % of all peers are hostile, so are about 30 % of the sample, however many
contacts they push.

`Crowds` bounds how many peers of a view, or of a bucket, are at one address.

`Answered` bounds how many long answers to small questions one peer gets (`quota.py`).

`Informants` knows which peers have spoken for themselves, and which peer told of each other one.
Views are exchanged as in Cyclon for as long as the peers that others tell of answer. Once some do
not, and have never spoken themselves, this peer doubts what it is told for a while: a name counts
when its peer has answered, and only a few names of each informant are pinged, fewer once names of
its own did not answer. Doubt costs pings, and only where peers lie or many die at once.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable

from weft.bounded import BoundedDict
from weft.ids import Contact, PeerId, Topic, network_of, peer_number
from weft.protocol.context import Context, Late
from weft.protocol.quota import COUNTED_MAX, Quota, Shares
from weft.protocol.seam import Millis
from weft.protocol.settings import Settings, require
from weft.rules.draw import absorb


class Config(Settings):
    """Defences against hostile peers, each on or off."""

    views: bool = True  # what others say of third peers is bounded; samples outlast what is pushed
    links: bool = True  # links give way with a reason only, and some are chosen by this peer
    score: bool = True  # links that bring nothing are given up
    access: bool = True  # a publisher goes through several access points, or beside its parent
    rates: bool = True  # walks of others go no farther than this peer's; shares are kept to
    claims: bool = True  # roles that a third peer names are confirmed by the peer itself
    # guess: peers of one address in a view, or in a bucket of the DHT's tables, a quarter of it.
    # Peers of this machine and of private networks are exempt, or a demonstration on one machine
    # would not work, unless `local_addresses` says that they count, too. 0: no bound.
    address_peers: int = 5
    local_addresses: bool = False

    def __post_init__(self) -> None:
        require(self.address_peers >= 0, "defence.address_peers must be at least 0")


# --- links that bring nothing ---------------------------------------------------------------------

SILENT_EVENTS = 8
"""guess: a lazy link that said nothing of so many events …"""
SILENT_LATE = 4
"""guess: … or any link that said nothing of so many that had to be repaired …"""
SILENT_MS = 5_000
"""guess: … for so long is silent; announcements take some 100 ms, and slow peers seconds."""
NEWS_MS = 10_000
"""guess: an event is news for so long after it came: slow peers speak of it seconds later."""
BROKEN_PROMISES = 8
"""guess: by how many the events that a link announced and did not send when asked exceed those that
it sent: an honest link breaks a promise only where a message is lost."""


class Silence:
    """What the neighbours of one topic have said of its events."""

    __slots__ = ("_broken", "_ctx", "_events", "_heard", "_late")

    def __init__(self, ctx: Context) -> None:
        self._ctx = ctx
        self._events = 0  # how many came
        self._late = 0  # of these, the ones that no link had brought
        self._broken: dict[PeerId, int] = {}  # by neighbour: promises broken, less those kept
        # By neighbour: how many of both there were when it last said something, and when.
        self._heard: dict[PeerId, tuple[int, int, Millis]] = {}

    def note_event(self) -> None:
        self._events += 1

    def note_late_event(self) -> None:
        """An event came by repair: no link had brought or announced it in time."""
        self._late += 1

    def watch(self, peer: PeerId) -> None:
        """A peer is a neighbour from now on."""
        self._heard[peer] = (self._events, self._late, self._ctx.now)

    def is_news(self, came_ms: Millis | None) -> bool:
        """Whether an announcement of an event that came at `came_ms` still counts."""
        return came_ms is not None and self._ctx.now - came_ms <= NEWS_MS

    def hear(self, peer: PeerId) -> None:
        """A peer pushed, repeated or announced an event that is news."""
        if peer in self._heard:
            self._heard[peer] = (self._events, self._late, self._ctx.now)

    def heard_at(self, peer: PeerId) -> Millis | None:
        """When a neighbour last pushed, repeated or announced an event, or became a neighbour."""
        known = self._heard.get(peer)
        return known[2] if known is not None else None

    def on_link_down(self, peer: PeerId) -> None:
        self._heard.pop(peer, None)
        self._broken.pop(peer, None)

    def break_promise(self, peer: PeerId) -> None:
        """A neighbour announced something, was asked for it, and did not send it in time."""
        if peer in self._heard:
            self._broken[peer] = self._broken.get(peer, 0) + 1

    def keep_promise(self, peer: PeerId) -> None:
        if peer in self._broken:
            self._broken[peer] = max(0, self._broken[peer] - 1)

    def broken_promises(self, peer: PeerId) -> int:
        """How many more promises a neighbour broke than it kept."""
        return self._broken.get(peer, 0)

    def liars(self) -> list[PeerId]:
        """The neighbours that announce what they do not have."""
        return [peer for peer, broken in self._broken.items() if broken >= BROKEN_PROMISES]

    def silent(self, announcing: Iterable[PeerId], fed: Iterable[PeerId]) -> list[PeerId]:
        """The neighbours that say nothing: of those that should be `announcing` each event, and of
        those that this peer has `fed` itself, which only owe events that came late."""
        limit = self._ctx.now - SILENT_MS
        found = []
        for peer in announcing:
            events, late, at = self._heard.get(peer, (0, 0, self._ctx.now))
            missed = self._events - events >= SILENT_EVENTS or self._late - late >= SILENT_LATE
            if missed and at <= limit:
                found.append(peer)
        for peer in fed:
            _, late, at = self._heard.get(peer, (0, 0, self._ctx.now))
            self._heard[peer] = (self._events, late, at)
            if self._late - late >= SILENT_LATE and at <= limit:
                found.append(peer)
        return found


# --- a sample that cannot be pushed aside ---------------------------------------------------------


class Sampler:
    """Some of the peers that have spoken for themselves, each equally likely."""

    __slots__ = ("_kept", "_keys")

    def __init__(self, keys: Iterable[int]) -> None:
        """`keys`: one for each place, which other peers cannot guess."""
        self._keys = tuple(keys)
        self._kept: list[tuple[int, Contact] | None] = [None] * len(self._keys)

    def meet(self, contact: Contact) -> None:
        number = peer_number(contact.peer)
        for place, key in enumerate(self._keys):
            rank, kept = absorb(key, number), self._kept[place]
            if kept is None or rank < kept[0] or kept[1].peer == contact.peer:
                self._kept[place] = rank, contact

    def forget(self, peer: PeerId) -> None:
        """The peer is gone: its places are for others."""
        for place, kept in enumerate(self._kept):
            if kept is not None and kept[1].peer == peer:
                self._kept[place] = None

    def contacts(self) -> list[Contact]:
        """The peers in it, each once."""
        return list({kept[1].peer: kept[1] for kept in self._kept if kept is not None}.values())


# --- many peers at one address --------------------------------------------------------------------


class Crowds:
    """How many of some contacts have an address in common: identities cost nothing, addresses do
    (S/Kademlia, Baumgart and Mies 2007; Heilman and others 2015 bound peers by address
    in Bitcoin's tables)."""

    __slots__ = ("_config", "_counts")

    def __init__(self, ctx: Context, contacts: Iterable[Contact]) -> None:
        self._config = ctx.config.defence
        self._counts: dict[str, int] = {}
        for contact in contacts:
            self._count(contact)

    def takes(self, contact: Contact) -> bool:
        """Whether one more contact of its address is within bounds; if so, it is counted."""
        most = self._config.address_peers
        if most and self._counts.get(network_of(contact.address)[0], 0) >= most:
            return False
        self._count(contact)
        return True

    def _count(self, contact: Contact) -> None:
        network, local = network_of(contact.address)
        if self._config.address_peers and network and (self._config.local_addresses or not local):
            self._counts[network] = self._counts.get(network, 0) + 1


# --- how often ------------------------------------------------------------------------------------

_ANSWERED_MS = 10_000
"""guess: the span in which long answers are counted, a cycle."""
_TOLD_SEEN = 4
"""guess: how often in it a peer is told what was published before; a reply may get lost."""
_OFFERED = 16
"""guess: how often in it held events are listed for a peer; views and links compare less."""
_REPAIRED_BYTES = 8 << 20
"""guess: bytes of events sent again in it to a peer without a link: twice what is held."""


class Answered:
    """What peers were answered at length lately, in each topic: questions are small (9 bytes for
    35 kB), so each peer has a share of answers."""

    __slots__ = ("_ctx", "_offered", "_repaired", "_told")

    def __init__(self, ctx: Context) -> None:
        self._ctx = ctx
        self._told = Shares(_TOLD_SEEN, _ANSWERED_MS)
        self._offered = Shares(_OFFERED, _ANSWERED_MS)
        self._repaired = Shares(_REPAIRED_BYTES, _ANSWERED_MS)

    def tells(self, topic: Topic, peer: PeerId) -> bool:
        """Whether a peer may be told once more what was published before."""
        return self._takes(self._told, topic, peer, 1)

    def offers(self, topic: Topic, peer: PeerId) -> bool:
        """Whether what is held may be listed for a peer once more."""
        return self._takes(self._offered, topic, peer, 1)

    def repairs(self, topic: Topic, peer: PeerId, linked: bool) -> Callable[[int], bool]:
        """Says of a number of bytes whether events of that size may be sent to a peer again; to a
        `linked` one always."""
        return lambda size: linked or self._takes(self._repaired, topic, peer, size)

    def _takes(self, shares: Shares, topic: Topic, peer: PeerId, cost: int) -> bool:
        takes = shares.takes(peer, topic, self._ctx.now, cost=cost)
        if not takes and self._ctx.config.defence.rates:
            self._ctx.counters["answers_refused"] += 1
            return False
        return True


# --- names that others tell of --------------------------------------------------------------------

_SPOKE_MAX = 1_024
"""guess: peers remembered as having spoken for themselves."""
_TOLD_MAX = 1_024
"""guess: peers remembered with the informant that named them; some fifty views of 20."""
_SILENT_NAMES = 2
"""guess: so many names that no peer answered to …"""
_SILENT_NAMES_MS = 60_000
"""guess: … within so long make a peer doubt what it is told …"""
_DOUBT_MS = 120_000
"""guess: … for so long, twelve cycles, counted from the latest of them."""
_NAMES_TRIED = 4
"""guess: names of one informant that are pinged in a span, half of what an exchange carries …"""
_NAMES_TRIED_AFTER = 1
"""guess: … and once a name of its own did not answer, until one does …"""
_NAMES_TRIED_IN_ALL = 32
"""guess: … and all informants together, over all views …"""
_NAMES_TRIED_MS = 10_000
"""guess: … in so long, a cycle."""
_SENT_TO = 16
"""guess: unproven contacts that one informant has this peer send to in that span …"""
_SENT_TO_IN_ALL = 64
"""measured: … and all informants together; where each of 150 peers subscribes to ten topics at
once, 11 of some 6,000 answers are refused."""
_SENT_TO_MAX = 1_024
"""guess: contacts remembered that this peer sent to on an informant's word."""


class Informants:
    """Which contacts are proven, which informant named each other one, and how far informants are
    believed, also as to where answers go.

    A contact is proven if its peer spoke for itself and listens at that address, or a live peer's
    id with a false address would pass."""

    __slots__ = (
        *("_blamed", "_ctx", "_each", "_few", "_silent"),
        *("_sent_to", "_sent_to_each", "_sent_to_in_all"),
        *("_spoke", "_told", "_total", "_until"),
    )

    def __init__(self, ctx: Context) -> None:
        self._ctx = ctx
        self._spoke: BoundedDict[PeerId, Contact] = BoundedDict(_SPOKE_MAX)
        self._told: BoundedDict[PeerId, PeerId] = BoundedDict(_TOLD_MAX)
        self._silent: deque[Millis] = deque(maxlen=_SILENT_NAMES)
        self._blamed: BoundedDict[PeerId, None] = BoundedDict(COUNTED_MAX)
        self._each: Quota[PeerId] = Quota(_NAMES_TRIED, _NAMES_TRIED_MS)
        self._few: Quota[PeerId] = Quota(_NAMES_TRIED_AFTER, _NAMES_TRIED_MS)
        self._total: Quota[None] = Quota(_NAMES_TRIED_IN_ALL, _NAMES_TRIED_MS)
        self._sent_to: BoundedDict[PeerId, Contact] = BoundedDict(_SENT_TO_MAX)
        self._sent_to_each: Quota[PeerId] = Quota(_SENT_TO, _NAMES_TRIED_MS)
        self._sent_to_in_all: Quota[None] = Quota(_SENT_TO_IN_ALL, _NAMES_TRIED_MS)
        self._until: Millis = 0  # this peer doubts what it is told until then

    @property
    def doubted(self) -> bool:
        """Whether names count only when their peers have answered."""
        return self._ctx.now < self._until

    def is_proven(self, contact: Contact) -> bool:
        return self._spoke.get(contact.peer) == contact

    def spoke(self, contact: Contact) -> None:
        """A peer spoke for itself: it is there, as its informant said."""
        self._spoke.renew(contact.peer, contact)
        informant = self._told.pop(contact.peer, None)
        if informant is not None:
            self._blamed.pop(informant, None)

    def told(self, informant: PeerId, contact: Contact) -> None:
        """A peer that is not proven is now in a view, on another's word."""
        if contact.peer not in self._told:
            self._told[contact.peer] = informant

    def try_name(self, informant: PeerId, contact: Contact) -> bool:
        """Have a peer pinged that another told of; False: the share of pings is used up."""
        if contact.peer in self._told:
            return True
        now = self._ctx.now
        quota = self._few if informant in self._blamed else self._each
        if not quota.takes(informant, now) or not self._total.takes(None, now):
            return False
        self._told[contact.peer] = informant
        self._ctx.tell(Late((contact,)))
        return True

    def may_send(self, informant: Contact, contact: Contact) -> bool:
        """Whether a message goes to a contact that another peer names, as walks name their origins.
        Each message is charged to the informant as a step of a walk; of unproven contacts, each of
        which may cost a connection that is never made, an informant may name a few."""
        if contact == informant or not self._ctx.config.defence.rates:
            return True
        if not self.is_proven(contact) and self._sent_to.get(contact.peer) != contact:
            now = self._ctx.now
            each, in_all = self._sent_to_each, self._sent_to_in_all
            if not each.takes(informant.peer, now) or not in_all.takes(None, now):
                self._ctx.counters["names_refused"] += 1
                return False
            self._sent_to.renew(contact.peer, contact)
        return self._ctx.carries_walk(informant, 1)

    def look_through(self, view: Iterable[Contact]) -> None:
        """Have the peers of a view pinged that have not spoken for themselves."""
        unproven = [contact for contact in view if not self.is_proven(contact)]
        due = tuple(one for one in unproven if self._total.takes(None, self._ctx.now))
        if due:
            self._ctx.tell(Late(due))

    def left(self, peer: PeerId) -> None:
        """A peer said goodbye, and so spoke for itself."""
        self._spoke.pop(peer, None)
        self._told.pop(peer, None)

    def lost(self, peer: PeerId) -> None:
        """A peer does not answer. If it never has spoken, its informant may have made it up."""
        self._spoke.pop(peer, None)
        informant = self._told.pop(peer, None)
        if informant is None or not self._ctx.config.defence.views:
            return
        now = self._ctx.now
        self._ctx.counters["names_silent"] += 1
        self._blamed.renew(informant, None)
        self._silent.append(now)
        if len(self._silent) == _SILENT_NAMES and now - self._silent[0] <= _SILENT_NAMES_MS:
            self._until = now + _DOUBT_MS
