"""The four dissemination schemes of the topic-aware DHT over arrays (Baehni and others, 5 and 6).

    roles = subscribed(held, places, k, seed)
    events = Events(roles, "forward-treecast", seed)
    outcome = events.publish(topic, publisher)

In the full schemes every subscriber takes part by its place, in the others only forwarders do and
each hands an event to its children when it gets it first. A child that publishes hands the event
to its parent, from where it goes on. A round is a hop. A topic's arrays hold its members alone, so
no copy can reach a peer that is not subscribed, by construction; whether such parasites occur is
judged with the simulator's machines (`tadht-parasite`).

Both ways to spread an event are compiled twins of `weft.rules.treecast`.

*Trees*: members are numbered by their place, so all that share a prefix are a range, and the half
that a level's links lead to is the other side of a range's cut. Links are not stored: which members
of a half a member keeps follows from its key, and is computed when it sends. Every member knows all
others here, so links are complete. Where a member would send to a dead one, `mended` says whether
it takes another live member of that half instead. With several trees, only a tree's own members
pass its events on, so a half's delegate is chosen among these.

*Gossip*: by push, a member that gets an event first in one round tells some of its view in the
next, neither the one it has it from nor the publisher. By push-pull, it tells few, and in the
rounds after that every member calls one of its view, and whichever of the two lacks the event gets
it. Views are uniform samples, drawn anew for each event: with Algorithm 2 a view changes between
two events that are some periods apart, and Lemma 5.1 is about views drawn anew each time.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal, NamedTuple, TypeAlias, get_args

import numpy as np

from weft.engine.core.arrays import Array, Ids, Numbers, Octets, Words
from weft.engine.core.draws import absorb, base_key, below, keyed, mixed, subset_mask
from weft.engine.core.jit import ONE, Bits, compiled, i64, part, u64
from weft.engine.core.vector import trailing_zeros
from weft.engine.topic_dht.roles import FORWARDS, Roles
from weft.engine.topic_dht.space import BITS, bit_of, common_prefix
from weft.rules import draw, treecast
from weft.rules.draw import stream_of
from weft.rules.roles import is_closer

Scheme: TypeAlias = Literal["full-gossip", "forward-gossip", "full-treecast", "forward-treecast"]
Crashed: TypeAlias = Literal["nobody", "roots", "members"]
"""Which members are dead when an event comes to them: none, all roots but the first, or as many
random members, the publisher excepted."""
SCHEMES: tuple[Scheme, ...] = get_args(Scheme)
LINKS = 4
"""measured (rules/treecast.py): links per level."""
LINKS_MAX = 32
"""The most links per level that can be asked for."""
VIEW = 20
"""guess, as in the machines' settings: members of a view."""
VIEW_MAX = 60
"""The largest view that can be asked for: partners are drawn with a mask of 64 bits."""
WHOLE = 20
"""As a bucket of the machines' tables: a half with fewer members is known as a whole."""
_ROOTS, _VIEWS, _CRASH = 1_000, 1_001, 1_002
"""Items of an event's key beside the numbers of its trees."""


class Crowd(NamedTuple):
    """The members that an event spreads among, and what happened to them."""

    places: Words  # sorted
    keys: Words  # from which each draws its links
    live: Octets
    sent: Numbers  # copies of the event, added up
    hops: Ids  # the fewest that one of its copies took; −1: none came
    calls: Numbers  # made in rounds of pulling


# --- trees ----------------------------------------------------------------------------------------


@part
def random_place(own: Bits, level: int, randomness: Bits) -> Bits:
    """A random place of the half across the bit of a level."""
    below = u64(BITS - 1 - level)
    tail = (randomness >> u64(1)) >> u64(level)  # in two steps: a shift by 64 is undefined
    return ((own ^ bit_of(level)) >> below) << below | tail


@part
def cut_at(places: Words, low: int, high: int, depth: int) -> int:
    """Where a range goes over from 0 to 1 in the bit after a prefix."""
    bit = bit_of(depth)
    while low < high:
        middle = (low + high) // 2
        if (places[middle] & bit) != u64(0):
            high = middle
        else:
            low = middle + 1
    return low


@part
def taken_in(taken: Numbers, count: int, low: int, high: int) -> int:
    inside = 0
    for at in range(count):
        inside += low <= taken[at] and taken[at] < high
    return inside


@compiled
def closest_left(
    places: Words, low: int, high: int, place: Bits, taken: Numbers, count: int
) -> int:
    """The member of a range closest to a place, the first `count` of `taken` excepted; at least one
    must be left."""
    while high - low > 1:
        depth = common_prefix(places[low], places[high - 1])
        middle = cut_at(places, low, high, depth)
        near, end = (middle, high) if (place & bit_of(depth)) != u64(0) else (low, middle)
        if end - near > taken_in(taken, count, near, end):
            low, high = near, end
        elif near == low:
            low = middle
        else:
            high = middle
    return low


@compiled
def keep_links(
    crowd: Crowd, one: int, level: int, low: int, high: int, most: int, links: Numbers
) -> int:
    """The links of a member to a half, in `links`; returns how many."""
    places = crowd.places
    key = absorb(crowd.keys[one], level)
    count = min(most, high - low)
    for at in range(count):
        place = random_place(places[one], level, absorb(key, at))
        links[at] = closest_left(places, low, high, place, links, at)
    return count


@part
def delegate(
    crowd: Crowd, one: int, level: int, links: Numbers, count: int, key: Bits, mended: bool
) -> int:
    """Which of its links a member sends to: the closest to a random place of the half. If `mended`,
    the closest live one, or −1 if all are dead."""
    place = random_place(crowd.places[one], level, absorb(key, level))
    chosen = -1
    for at in range(count):
        link = links[at]
        if mended and not crowd.live[link]:
            continue
        if chosen < 0 or is_closer(place, crowd.places[link], crowd.places[chosen]):
            chosen = i64(link)
    return chosen


@part
def live_in(crowd: Crowd, low: int, high: int, key: Bits) -> int:
    """A live member of a range where all links are dead: the first from a drawn one on."""
    start = low + i64(key % u64(high - low))
    for step in range(high - low):
        one = low + (start - low + step) % (high - low)
        if crowd.live[one]:
            return one
    return -1


@part
def reach(crowd: Crowd, one: int, to: int, hop: int) -> None:
    """A copy goes over a link of a tree."""
    crowd.sent[one] += 1
    if crowd.hops[to] < 0 or hop < crowd.hops[to]:
        crowd.hops[to] = hop


@part
def halves(places: Words, one: int, low: int, high: int) -> tuple[int, int, int, int, int]:
    """A range of members cut where their places differ first: at which bit, the half without a
    member, and the half with it."""
    level = common_prefix(places[low], places[high - 1])
    middle = cut_at(places, low, high, level)
    if one < middle:
        return level, middle, high, low, middle
    return level, low, middle, middle, high


@part
def put(todo: Ids, have: int, one: int, low: int, high: int, hop: int) -> int:
    """Note that a member is to spread an event in its range; returns how many notes there are."""
    todo[have, 0], todo[have, 1], todo[have, 2], todo[have, 3] = one, low, high, hop
    return have + 1


@compiled
def spread_tree(crowd: Crowd, root: int, most: int, event: Bits, mended: bool) -> int:
    """One event through the tree of one root; returns the messages.

    `event` is the event's key: a member draws its delegates by it and by its own number.
    """
    count = len(crowd.places)
    todo = np.empty((count, 4), np.int32)  # member, its range, its hops
    links = np.empty(LINKS_MAX, np.int64)
    crowd.hops[root] = 0
    have, messages = put(todo, 0, root, 0, count, 0), 0
    while have:
        have -= 1
        one, low, high = i64(todo[have, 0]), i64(todo[have, 1]), i64(todo[have, 2])
        if not crowd.live[one]:
            continue
        hop = i64(todo[have, 3]) + 1
        key = absorb(event, one)
        while high - low > 1:
            level, begin, end, low, high = halves(crowd.places, one, low, high)
            kept = keep_links(crowd, one, level, begin, end, most, links)
            to = delegate(crowd, one, level, links, kept, key, mended)
            if to < 0:
                to = live_in(crowd, begin, end, absorb(key, level))
            if to >= 0:
                messages += 1
                reach(crowd, one, to, hop)
                have = put(todo, have, to, begin, end, hop)
    return messages


@part
def first_from(numbers: Numbers, least: int) -> int:
    """Where ascending numbers reach a value."""
    low, high = 0, len(numbers)
    while low < high:
        middle = (low + high) // 2
        if numbers[middle] < least:
            low = middle + 1
        else:
            high = middle
    return low


@compiled
def spread_forest(
    crowd: Crowd, root: int, inside: Numbers, whole: int, event: Bits, mended: bool
) -> int:
    """One event through one of several trees, of which `inside` are the members that may pass it
    on, ascending; returns the messages."""
    count = len(crowd.places)
    todo = np.empty((count, 4), np.int32)  # member, its range, its hops
    none = np.empty(0, np.int64)
    inner = crowd.places[inside]
    crowd.hops[root] = 0
    have, messages = put(todo, 0, root, 0, count, 0), 0
    while have:
        have -= 1
        one, low, high = i64(todo[have, 0]), i64(todo[have, 1]), i64(todo[have, 2])
        if not crowd.live[one]:
            continue
        hop = i64(todo[have, 3]) + 1
        key = absorb(event, one)
        while high - low > 1:
            level, begin, end, low, high = halves(crowd.places, one, low, high)
            first, last = first_from(inside, begin), first_from(inside, end)
            if first == last and end - begin < whole:
                for leaf in range(begin, end):
                    if crowd.live[leaf] or not mended:
                        messages += 1
                        reach(crowd, one, leaf, hop)
            else:
                place = random_place(crowd.places[one], level, absorb(key, level))
                if first < last:
                    to = i64(inside[closest_left(inner, first, last, place, none, 0)])
                else:
                    to = i64(closest_left(crowd.places, begin, end, place, none, 0))
                if mended and not crowd.live[to]:
                    to = live_in(crowd, begin, end, absorb(key, level))
                if to >= 0:
                    messages += 1
                    reach(crowd, one, to, hop)
                    have = put(todo, have, to, begin, end, hop)
    return messages


def trees_of(places: Words, roots: list[int]) -> Numbers:
    """For each member the one tree, of as many as there are roots, in which it passes events on."""
    hashes = mixed(places)
    found = (hashes % u64(len(roots))).astype(np.int64)
    for tree, root in reversed(list(enumerate(roots))):  # the first, should one be named twice
        found[root] = tree
    return found


def roots_of(places: Words, first: int, count: int, key: int) -> list[int]:
    """Roots for one event: the first, and further members, each the closest of those that are left
    to a random place."""
    rest = np.delete(np.arange(len(places)), first)
    found = [first]
    while len(rest) and len(found) < count:
        place = u64(draw.absorb(key, len(found) - 1))
        nearest = int(np.argmin(places[rest] ^ place))
        found.append(int(rest[nearest]))
        rest = np.delete(rest, nearest)
    return found


# --- gossip ---------------------------------------------------------------------------------------


@compiled
def draw_view(view: Numbers, one: int, members: int, most: int, key: Bits) -> int:
    """The view of a member: so many others, or all; returns how many."""
    if members - 1 <= most:
        for at in range(members - 1):
            view[at] = at + (at >= one)
        return members - 1
    have = attempt = 0
    while have < most:
        other = below(absorb(key, attempt), members - 1)
        other += other >= one
        attempt += 1
        known = False
        for at in range(have):
            known = known or view[at] == other
        if not known:
            view[have] = other
            have += 1
    return most


@compiled
def partners(
    view: Numbers, count: int, wanted: int, key: Bits, without: int, nor: int, chosen: Numbers
) -> int:
    """Draw `wanted` members of a view into `chosen`, two excepted; returns how many there are."""
    others = 0
    for at in range(count):
        if view[at] != without and view[at] != nor:
            view[others] = view[at]
            others += 1
    mask = subset_mask(key, others, wanted)
    have = 0
    while mask != u64(0):
        chosen[have] = view[i64(trailing_zeros(mask))]
        have += 1
        mask &= mask - ONE
    return have


@part
def hand(crowd: Crowd, one: int, to: int, step: int) -> bool:
    """A copy goes to a member; returns whether it is the member's first."""
    crowd.sent[one] += 1
    if crowd.hops[to] >= 0 or not crowd.live[to]:
        return False
    crowd.hops[to] = step
    return True


@compiled
def push(
    crowd: Crowd, publisher: int, fanout: int, view_size: int, views: Bits, event: Bits
) -> tuple[int, int]:
    """An event by push; returns the copies sent and the last round in which it came to anybody.

    `views` is the key of this event's views, `event` the key by which members choose of them.
    """
    members = len(crowd.live)
    queue, source = np.empty(members, np.int32), np.empty(members, np.int32)
    view, chosen = np.empty(VIEW_MAX, np.int64), np.empty(VIEW_MAX, np.int64)
    queue[0], source[0] = publisher, -1
    crowd.hops[publisher] = 0
    done, have, copies, last = 0, 1, 0, 0
    while done < have:
        one, came_from = i64(queue[done]), i64(source[done])
        done += 1
        step = i64(crowd.hops[one]) + 1
        count = draw_view(view, one, members, view_size, absorb(views, one))
        count = partners(view, count, fanout, absorb(event, one), came_from, publisher, chosen)
        for at in range(count):
            to = chosen[at]
            copies += 1
            if hand(crowd, one, to, step):
                queue[have], source[have] = to, one
                have += 1
                last = max(last, step)
    return copies, last


@compiled
def pull(crowd: Crowd, rounds: int, first: int, view_size: int, views: Bits, event: Bits) -> int:
    """Rounds in which every live member calls one of its view, after the round `first`; returns
    the copies sent."""
    members = len(crowd.live)
    view = np.empty(VIEW_MAX, np.int64)
    had = np.empty(members, np.uint8)
    copies = 0
    for turn in range(rounds):
        step = first + turn + 1
        for one in range(members):
            had[one] = crowd.hops[one] >= 0
        for one in range(members):
            if not crowd.live[one]:
                continue
            count = draw_view(view, one, members, view_size, absorb(views, one))
            if count == 0:
                continue
            to = view[below(absorb(absorb(event, one), turn), count)]
            crowd.calls[one] += 1
            if not crowd.live[to] or had[one] == had[to]:
                continue
            giver, taker = (one, to) if had[one] else (to, one)
            copies += 1
            hand(crowd, giver, taker, step)
    return copies


# --- events ---------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Outcome:
    """What became of one event."""

    members: int  # N_t, dead ones included
    payloads: int  # copies of the event between members
    handovers: int  # of these, from a child to its parent, and from the first root to the others
    calls: int  # in rounds of pulling, with or without a copy
    rounds: int  # until the last one that got it had it
    missed: int  # live members that never got it
    orphans: int  # of these, children of dead forwarders


@dataclass
class Events:
    """Events in the topics of some roles, and the work that each member did."""

    roles: Roles
    scheme: Scheme
    seed: int
    mode: treecast.Mode = "push"
    links: int = LINKS
    view: int = VIEW
    mended: bool = False  # whether dead links are noticed and others taken
    live: Octets | None = None  # by peer; None: everybody
    sent: Numbers = field(init=False)  # payloads, by membership
    received: Numbers = field(init=False)  # events, by membership
    _ranked: Array = field(init=False)
    _live: Octets = field(init=False)
    _number: int = 0

    def __post_init__(self) -> None:
        held, state = self.roles.held, self.roles.state
        if self.links > LINKS_MAX or self.view > VIEW_MAX:
            raise ValueError(f"at most {LINKS_MAX} links and {VIEW_MAX} in a view")
        self.sent = np.zeros(held.total, np.int64)
        self.received = np.zeros(held.total, np.int64)
        self._ranked = np.lexsort((state.places, held.topic_of))
        live = np.ones(held.peers, np.uint8) if self.live is None else self.live
        self._live = live[held.members]

    @property
    def is_full(self) -> bool:
        return self.scheme.startswith("full-")

    def crowd_of(self, topic: int) -> Array:
        """The memberships that take part, by place."""
        held = self.roles.held
        if self.is_full:
            return self._ranked[held.offsets[topic] : held.offsets[topic + 1]]
        return self.roles.forwarders_of(topic)

    def random_member(self, topic: int) -> int:
        """A live membership, uniformly, for the next event."""
        held = self.roles.held
        members = np.arange(held.offsets[topic], held.offsets[topic + 1])
        members = members[self._live[members] == 1]
        key = draw.absorb(int(base_key(self.seed, stream_of("engine.topic_dht.publisher"))), topic)
        return int(members[draw.below(draw.absorb(key, self._number), len(members))])

    def publish(
        self, topic: int, publisher: int, roots: int = 1, crashed: Crashed = "nobody"
    ) -> Outcome:
        """An event of a member, by as many trees as there shall be roots."""
        self._number += 1
        crowd = self.crowd_of(topic)
        entry = publisher
        if not self.is_full and self.roles.parent[publisher] != FORWARDS:
            entry = int(self.roles.parent[publisher])
        first = int(np.flatnonzero(crowd == entry)[0])
        base = int(base_key(self.seed, stream_of("engine.topic_dht.event")))
        key = draw.absorb(base, self._number)
        live = self._live
        others, calls = 0, 0
        if self.scheme.endswith("treecast"):
            places = self.roles.state.places[crowd]
            chosen = roots_of(places, first, roots, draw.absorb(key, _ROOTS))
            others = len(chosen) - 1
            if crashed != "nobody":
                dead = np.array(chosen[1:], np.int64)
                if crashed == "members":
                    drawn = keyed(np.arange(len(crowd)), u64(draw.absorb(key, _CRASH)))
                    if entry == publisher:
                        drawn[first] = u64(draw.MASK64)
                    dead = np.argsort(drawn, kind="stable")[: len(dead)]
                live = live.copy()
                live[crowd[dead]] = 0
            hops, sent, payloads = self._by_trees(crowd, chosen, live, key)
        else:
            hops, sent, payloads, calls = self._by_gossip(crowd, first, key)
        self.sent[crowd] += sent
        handed = int(entry != publisher)
        if handed:
            self.sent[publisher] += 1
            hops = np.where(hops >= 0, hops + 1, hops)
        arrived, told = self._arrivals(topic, publisher, crowd, hops, live)
        got = arrived >= 0
        members = np.arange(len(arrived)) + int(self.roles.held.offsets[topic])
        self.received[members[got]] += 1
        missed = members[(live[members] == 1) & ~got]
        parents = self.roles.parent[missed].astype(np.int64)
        below_dead = (parents >= 0) & (live[np.maximum(parents, 0)] == 0)
        return Outcome(
            len(members),
            payloads + told + handed + others,
            handed + others,
            calls,
            int(arrived[got].max()),
            len(missed),
            0 if self.is_full else int(below_dead.sum()),
        )

    def _arrivals(
        self, topic: int, publisher: int, crowd: Array, hops: Array, live: Octets
    ) -> tuple[Array, int]:
        """Forwarders hand the event to their children. Returns after how many hops each live member
        has it (−1: it has not), and how many copies that took."""
        held, state = self.roles.held, self.roles.state
        start, end = int(held.offsets[topic]), int(held.offsets[topic + 1])
        arrived = np.full(end - start, -1, np.int64)
        reached = (live[crowd] == 1) & (hops >= 0)
        arrived[crowd[reached] - start] = hops[reached]
        copies = 0
        if not self.is_full:
            parents = state.parent[start:end].astype(np.int64)
            told = parents >= 0
            told[told] = arrived[parents[told] - start] >= 0
            told[publisher - start] = False
            arrived[told] = arrived[parents[told] - start] + 1
            np.add.at(self.sent, parents[told], 1)
            copies = int(told.sum())
        arrived[publisher - start] = 0
        arrived[live[start:end] == 0] = -1
        return arrived, copies

    def _crowd(self, crowd: Array, live: Octets) -> Crowd:
        """The columns of these memberships before an event: nothing sent, nobody reached."""
        count = len(crowd)
        return Crowd(
            self.roles.state.places[crowd],
            keyed(crowd, base_key(self.seed, stream_of("engine.topic_dht.links"))),
            live[crowd],
            np.zeros(count, np.int64),
            np.full(count, -1, np.int32),
            np.zeros(count, np.int64),
        )

    # --- trees ------------------------------------------------------------------------------------

    def _by_trees(
        self, crowd: Array, roots: list[int], live: Octets, key: int
    ) -> tuple[Array, Array, int]:
        some = self._crowd(crowd, live)
        payloads, best = 0, np.full(len(crowd), -1, np.int64)
        trees = trees_of(some.places, roots)
        for number, root in enumerate(roots):
            some.hops[:] = -1
            event = u64(draw.absorb(key, number))
            if len(roots) == 1:
                payloads += spread_tree(some, root, self.links, event, self.mended)
            else:
                inside = np.flatnonzero((trees == number) & ((some.live == 1) | (not self.mended)))
                payloads += spread_forest(some, root, inside, WHOLE, event, self.mended)
            later = int(number > 0)  # a further root is told by the first
            came = (some.hops >= 0) & (some.live == 1)
            hops = np.where(came, some.hops + later, -1)
            best = np.where(came & ((best < 0) | (hops < best)), hops, best)
        some.sent[roots[0]] += len(roots) - 1
        return best, some.sent, payloads

    # --- gossip -----------------------------------------------------------------------------------

    def _by_gossip(self, crowd: Array, first: int, key: int) -> tuple[Array, Array, int, int]:
        count = len(crowd)
        some = self._crowd(crowd, self._live)
        views, event = u64(draw.absorb(key, _VIEWS)), u64(draw.absorb(key, 0))
        fanout = treecast.fanout(count, self.mode)
        copies, last = push(some, first, fanout, self.view, views, event)
        calls = 0
        if self.mode == "push-pull" and count > 1:
            rounds = treecast.pull_rounds(count)
            later = u64(draw.absorb(key, 1))
            copies += pull(some, rounds, last, self.view, views, later)
            calls = int(some.calls.sum())
        return some.hops.astype(np.int64), some.sent, copies, calls
