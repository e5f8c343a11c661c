"""The push tree's decisions: which links a topic has, which of them form the tree (Plumtree:
Leitão, Pereira, Rodrigues 2007).

*Stable links.* Cyclon's view changes every cycle, while a tree needs links that stay. Each member
therefore keeps a small symmetric set of links per topic, drawn at random from its view and replaced
only on failure (the split of HyParView, by the same authors: a small active view that stays, a
larger passive one that moves). Where peers rank each other (StaN, `rules/stan.py`), links go to the
first of the ranking instead. StaN's weight is asymmetric, since its views are directed. A link
belongs to both its ends, and each must want it for the same reason in every topic that the two
share: the pair's weight is the lower one of the two. Such weights are as independent as the others,
so links stay as random.

*Waves.* Every member gets a second copy of an event over each link that is not in the tree, and
prunes that link. One event alone leaves a spanning tree behind. Two events in flight at once do
not: seen from one side, each link of a cycle is the redundant one for one of the events, and if
both are pruned, the cycle falls apart. That goes for two publishers, and for two events of one
publisher as soon as delays vary.

Deviation: only some events shape the tree, one at a time. They are called waves. They come from one
publisher, the one with the smallest id among those heard of lately that have been heard of for a
while, and are the first that it published in each second or so. All members agree on them without a
word, since all see the same events. While they do not agree yet, nothing falls apart either: a
member keeps the link over which the latest wave reached it first, and says so if the other end
prunes it.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import Enum

from weft.ids import PeerId

SHAPER_KNOWN_MS = 60_000
"""guess: how long a publisher must have been heard of before it may shape a tree; names cost a liar
nothing, but each has to be kept up that long."""
PATIENCE_MAX = 16
"""guess: how many times longer than usual a member waits at the most."""

# --- links ----------------------------------------------------------------------------------------


def accepts(links: int, most: int, urgent: bool) -> bool:
    """Whether a member with `links` takes one more. `urgent`: the asker has none, and is never
    refused."""
    return links < most or urgent


def must_evict(links: int, most: int) -> bool:
    """Whether taking one more link means giving up another one."""
    return links >= most


def still_wanted(links: int, asked: int, wanted: int) -> int:
    """How many more members to ask for a link."""
    return max(0, wanted - links - asked)


def may_ask_again(links: int, wanted: int) -> bool:
    """Whether to ask for the link to a member that was silent and is back. It may be all that joins
    two parts of a topic that was cut, each with links enough of its own, so it may be one more than
    is wanted."""
    return links <= wanted


def still_to_choose(chosen: int, asked: int, quota: int) -> int:
    """How many more members to ask so that some links are of this member's own choice, however
    many others have asked it for one (GossipSub v1.1, Section 5.3: the outbound quota)."""
    return max(0, quota - chosen - asked)


def pair_weight(mine: int, theirs: int) -> int:
    """How early two peers want a link to each other, alike at both ends; the lowest first."""
    return min(mine, theirs)


def may_release(links: int, wanted: int, ideal: bool, carries: bool) -> bool:
    """Whether a member can do without a link: it has others enough, this one is not among those
    it wants most, and no event depends on it."""
    return links > wanted and not ideal and not carries


# --- the tree -------------------------------------------------------------------------------------


def shapes_tree(
    shaper: PeerId | None, heard_ms: int, publisher: PeerId, now_ms: int, quiet_ms: int
) -> bool:
    """Whether `publisher` takes (or keeps) the role of `shaper`, last heard of at `heard_ms`."""
    return shaper is None or publisher <= shaper or now_ms - heard_ms > quiet_ms


def may_shape(known_ms: int, topic_ms: int) -> bool:
    """Whether a publisher may take the role that was first heard of `known_ms` ago, in a topic
    whose first event came `topic_ms` ago: one new name after the other, each the smallest and heard
    of at several places first, would else tear the tree each time (`sim/attacks.py`, replay)."""
    return known_ms >= min(SHAPER_KNOWN_MS, topic_ms // 2)


def is_wave(
    number: int, published_ms: int, before_ms: int | None, every_ms: int, was_shaper: bool
) -> bool:
    """Whether an event of the shaping publisher's is a wave: the first one, or the first in a
    stretch of `every_ms` by the publisher's clock. `before_ms`: when the event numbered just
    before it was published; a member that has not seen that one cannot tell, and prunes nothing.
    `was_shaper`: the publisher did not take the role over with this event; if it did, a first event
    of its own says nothing, as with `may_shape`."""
    if number == 1:
        return was_shaper
    return before_ms is not None and before_ms // every_ms != published_ms // every_ms


def prunes(parent: PeerId | None, parent_is_eager: bool, sender: PeerId) -> bool:
    """Whether a second copy of the latest wave, from `sender`, makes that link lazy: only if the
    first copy was pushed over another link, of the `parent`, that still carries events. A repair
    on the side must not tear the tree."""
    return parent is not None and parent != sender and parent_is_eager


def starts_eager(has_eager: bool, saw_events: bool) -> bool:
    """Whether a new link pushes events at once.

    Deviation: in Plumtree every new link does. Here only until a first event has shaped a tree,
    or where nothing else feeds this member; any other link would only bring second copies.
    """
    return not has_eager or not saw_events


class Fate(Enum):
    """What became of an announced event that has not come."""

    QUEUED = "queued"  # it may still be on its way over the link that brings its publisher's
    LOST = "lost"  # it was to come over that link and did not
    UNKNOWN = "unknown"


def fate(number: int, fed_first: int, fed_last: int) -> Fate:
    """The fate of an event whose publisher's events come over one link, in order, so far with the
    numbers `fed_first` to `fed_last`. Earlier events may have taken another way."""
    if number > fed_last:
        return Fate.QUEUED
    return Fate.LOST if number >= fed_first else Fate.UNKNOWN


def mends(mine: PeerId, told: Iterable[PeerId]) -> bool:
    """Whether this member is the one to mend the tree for an event that comes over no link. The
    neighbours that it has told so (`told`) find that out at the same time; the smallest id mends,
    so that of two neighbours never both do."""
    return all(mine < peer for peer in told)


def announcer_rank(broken: int, is_eager: bool) -> tuple[int, bool]:
    """How early an announcer is asked for an event, the lowest first: those that have broken the
    fewest promises, and of these the ones over whose links the tree goes, since they change
    nothing in it. Deviation: Plumtree asks them in the order in which they announced."""
    return broken, not is_eager


def patience(now_ms: int, false_alarm: bool, usual_ms: int) -> int:
    """How long to wait for an announced event from now on.

    Doubles whenever an event that was asked for came by the tree after all, which is what happens
    on slow or busy machines and would else only add to their load; shrinks when asking helped.
    """
    if false_alarm:
        return min(now_ms * 2, PATIENCE_MAX * usual_ms)
    return max(usual_ms, now_ms * 3 // 4)
