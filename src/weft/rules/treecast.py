"""Events over a topic-aware DHT: trees of which every member is the root of its own, and gossip
(Baehni and others, Sections 5.1 and 5.2).

*Trees.* The members of a topic lie on m = 2^bits places by the hash of their ids. A level-i link
leads to the member that is reached when routing to hash ± m/2^(i+1): the same place but for the
i-th bit. A member that sends on a level-i link puts the receiver *in charge* of all members that
share its first i+1 bits; the receiver passes the event on over its links of level i+1 and deeper,
and so divides what it is in charge of into halves until it is alone in one. No two halves overlap,
so in a network whose links are complete every member gets an event exactly once: N−1 messages.

Deviations. Closest is meant by XOR (`rules/roles.py`), so of the paper's two places at a level,
+ and −, only the one across the bit is another half; and a member serves all levels below the one
it received on, not the next one alone, as only then the halves are disjoint. The message says what
its receiver is in charge of, since members do not count levels alike where some halves are empty.

Which member of a half is sent to decides how the work is shared. Where each level has one link, as
in the paper, some members forward often and others never (a Jain index of 0.80 over the members of
one topic). Here each level keeps several links and an event goes to the one closest to a random
place of that half (`delegates`). A member is then reached by a fork of the prefixes with
probability 2^−(forks below it), so that it sends Σ 2^−i ≈ 1 message per event wherever it lies.
"Closest to a random value" is a biased draw of a member (`roles.Region`), and here that very bias
makes trees fair.

Invariants: a delegate is in charge of strictly fewer places than the member that sends to it, so a
tree has no circle and at most `bits` levels, whatever the links are.

*Several trees* (Section 5.2, and Reliability in Section 6: f failures are tolerated with f + 1
different roots). Different roots alone do not give that: in trees drawn independently a member may
be inside of several, and one crash then breaks them all. So each member belongs to one tree, a root
to its own and any other by its hash mod f + 1 (`tree_of`), and only there it passes the event on;
in the others it is a leaf. This is how SplitStream (Castro and others 2003) keeps its trees apart.
A crash breaks one tree at most, and f crashes leave one whole.

A half without a member of the tree is served directly by its sender, if that knows all of it
(`forest_delegates`).

Deviations. The paper has no such classes. Where a half without a member of the tree has more
members than its sender knows, another member is put in charge of it, and is inside of two trees
then; with three trees and twenty known that is one such half in 3,000. A member with several trees
sends to any forwarder that it knows, not to its few links, which would lack some tree's members.

*Gossip.* By *push*, a member that gets an event for the first time tells ln n + c members of its
view. Then all have it with probability exp(−e^−c) if the view is a uniform sample (Kermarrec,
Massoulié, Ganesh 2003), by n·(ln n + c) messages. By *push-pull*, first receivers tell only a few,
which reaches most members; then every member calls a random one per round, and the two compare what
they have. A member that lacks the event meets one that has it with probability 1 − ε, where ε is
the share that lacks it, so ε is squared in every round: about log₂ log₂ n rounds of n calls, and
hardly more than the first few·n copies of the event (Karp, Schindelhauer, Shenker, Vöcking 2000).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Literal, TypeAlias, TypeVar

from weft.rules.draw import absorb, mix, slots_in, subset_mask
from weft.rules.prefix import common_prefix

Mode: TypeAlias = Literal["push", "push-pull"]
Member = TypeVar("Member")

ROOT_CHARGE = 0
"""The charge of a root: all members, whatever bits they share with it."""
ROOTS_MAX = 8
"""guess: trees that one event may go out by."""
PUSH_MARGIN = 3
"""guess: c of ln n + c; all are reached by the push alone 19 times in 20."""
FEW = 3
"""guess: told by each first receiver under push-pull; the push alone reaches 94 % of them."""


def link_target(own: int, level: int, bits: int) -> int:
    """Where the links of a level are looked for: hash ± m/2^(level+1), across that bit."""
    if not 0 <= level < bits:
        raise ValueError(f"no level {level} among {bits} bits")
    return own ^ 1 << (bits - 1 - level)


def random_place(own: int, level: int, bits: int, randomness: int) -> int:
    """A random place of the half that a level's links lead to, from 64 random bits."""
    below = bits - 1 - level
    tail = randomness << (below - 64) if below >= 64 else randomness >> (64 - below)
    return (link_target(own, level, bits) >> below) << below | tail


def levels(own: int, known: Iterable[int], bits: int) -> dict[int, list[int]]:
    """Members by the level whose links they may be; no level without any."""
    found: dict[int, list[int]] = {}
    for one in known:
        if one != own:
            found.setdefault(common_prefix(own, one, bits), []).append(one)
    return dict(sorted(found.items()))


def kept_links(
    own: int, level: int, known: Sequence[int], kept: Sequence[int], count: int, key: int, bits: int
) -> list[int]:
    """Which members stay links of a level: those that were and are still known, then for each
    free place the one closest to a random place of that half."""
    rest = sorted(set(known))
    links = [one for one in kept if one in rest][:count]
    rest = [one for one in rest if one not in links]
    while rest and len(links) < count:
        place = random_place(own, level, bits, absorb(absorb(key, level), len(links)))
        chosen = min(rest, key=lambda one: one ^ place)
        links.append(chosen)
        rest.remove(chosen)
    return links


def delegates(
    own: int, charge: int, links: Mapping[int, Sequence[int]], key: int, bits: int
) -> list[tuple[int, int]]:
    """The members that an event goes on to, and what each of them is in charge of then: one link of
    every level from `charge` on, the closest to a random place of its half."""
    chosen = []
    for level in sorted(links):
        if level >= charge and links[level]:
            place = random_place(own, level, bits, absorb(key, level))
            chosen.append((min(links[level], key=lambda one: one ^ place), level + 1))
    return chosen


def tree_of(member: int, roots: Sequence[int], bits: int) -> int:
    """Which of an event's trees a member may be inside of: a root of its own, any other of the one
    that 64 bits of its hash choose."""
    if member in roots:
        return roots.index(member)
    return mix(member >> max(0, bits - 64)) % len(roots)


def forest_delegates(
    own: int,
    charge: int,
    known: Mapping[int, Sequence[int]],
    key: int,
    bits: int,
    tree: int,
    roots: Sequence[int],
    whole: int,
) -> list[tuple[int, int]]:
    """As `delegates`, for one of several trees: of the known members of a half only those of that
    tree are put in charge of it. Where there is none, the event goes to each known member, which
    passes nothing on, if fewer than `whole` are known; if more are, some may be unknown."""
    chosen: list[tuple[int, int]] = []
    for level in sorted(known):
        if level < charge:
            continue
        there = sorted(known[level])
        inside = [one for one in there if tree_of(one, roots, bits) == tree]
        if not inside and len(there) < whole:
            chosen += [(one, bits) for one in there]
        else:
            place = random_place(own, level, bits, absorb(key, level))
            chosen.append((min(inside or there, key=lambda one: one ^ place), level + 1))
    return chosen


def is_in_charge(own: int, charge: int, other: int, bits: int) -> bool:
    """Whether a member lies in what this one is in charge of."""
    return common_prefix(own, other, bits) >= charge


def other_roots(known: Sequence[int], count: int, key: int, bits: int) -> list[int]:
    """Further roots for one event, beside the publisher: each the closest to a random place."""
    rest = sorted(set(known))
    roots: list[int] = []
    while rest and len(roots) < count:
        bits64 = absorb(key, len(roots))
        place = bits64 << (bits - 64) if bits >= 64 else bits64 >> (64 - bits)
        chosen = min(rest, key=lambda one: one ^ place)
        roots.append(chosen)
        rest.remove(chosen)
    return roots


# --- gossip ---------------------------------------------------------------------------------------


def fanout(members: int, mode: Mode) -> int:
    """How many members are told by each that gets an event for the first time."""
    if mode == "push-pull":
        return FEW
    return math.ceil(math.log(max(2, members))) + PUSH_MARGIN


def partners(
    view: Sequence[Member], count: int, key: int, without: Sequence[Member] = ()
) -> list[Member]:
    """So many members of a view, every choice equally likely."""
    others = [one for one in view if one not in without]
    return [others[slot] for slot in slots_in(subset_mask(key, len(others), count))]


def pull_rounds(members: int) -> int:
    """Rounds in which every member calls another after an event: log₂ log₂ n, and two to spare."""
    return math.ceil(math.log2(max(2.0, math.log2(max(2, members))))) + 2
