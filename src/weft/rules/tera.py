"""TERA's decisions: access points, walks that look for them, topic overlays (Baldoni and others
2007, Sections 3 and 4.2.2).

*Access point table.* An advertisement for a topic replaces the topic's entry if there is one; else
it is inserted with probability 1/popularity, which cancels that popular topics are advertised more
often; a random entry makes room. From this follow the five properties that the tests check: entries
are fresh, inactive topics vanish, access points are uniform over a topic's subscribers, topics
uniform over the active ones, and the table is bounded.

*Lookup.* A lookup sends r walks through the general overlay; each visited peer answers from its
table. K counts the visits of all walks together; each walk lives ⌈K/r⌉ steps. K follows from the
table's size |APT| and the number of active topics |T|, which tables estimate from each other.

*Overlay identity.* A peer that starts a topic overlay gives it a random id. When two parts of a
topic meet, all members must end with the same id, whatever the order in which they meet: the
smaller one survives. View exchanges spread it, at growing intervals while nothing changes.

Deviation: in a full table a peer that is the access point of more than a fourth of the entries
displaces its own (`has_share`), since one peer's advertisements would else displace all others. So
topics are not uniform where one peer is the only subscriber of very many.

Deviation: a liar could name a smaller id again and again, so that a topic's members never agree.
Peers therefore compare hashes of ids (`keeps_overlay`): each id that survives the one before takes
more tries to find, so even 2⁴⁰ of them yield about 28 in a row. The engine, whose peers are honest,
compares the ids themselves.
"""

from __future__ import annotations

import math
from hashlib import sha256

from weft.ids import OverlayId, Topic
from weft.rules.draw import below

# --- the access point table -----------------------------------------------------------------------

SHARE = 4
"""guess: of a full table one access point gets a part in so many from others: a hostile peer would
else flush it with eight messages, and an honest one may be the only subscriber of many topics."""


def admits(bits: int, popularity: int) -> bool:
    """Whether a topic that is not in the table enters it on this advertisement."""
    return below(bits, popularity) == 0 if popularity > 1 else True


def evicted_slot(bits: int, count: int) -> int:
    """Which of `count` entries makes room when the table is over its size."""
    return below(bits, count)


def has_share(entries: int, table_size: int) -> bool:
    """Whether one peer is the access point in so many entries that a further one of its own
    displaces one of these."""
    return SHARE * entries > table_size


def topics_active(table_size: int, offered: int, shared: int) -> int:
    """How many topics are active, by capture and recapture (TERA 4.2.2, footnote 7).

    Tables are uniform samples of the active topics. Of `offered` topics sampled from other
    tables, `shared` were also in a table of `table_size` entries. Zero means unknown.
    """
    if offered <= 0 or shared <= 0 or table_size <= 0:
        return 0
    return max(table_size, round(table_size * offered / shared))


# --- lookups --------------------------------------------------------------------------------------


def visits_needed(success: float, table_size: int, topics: int, most: int) -> int:
    """K such that a lookup succeeds with probability `success`: ln(1−P)/ln(1−|APT|/|T|)."""
    if table_size >= topics:
        return 1
    if table_size <= 0:
        return most
    visits = math.log1p(-success) / math.log1p(-table_size / topics)
    return max(1, min(most, math.ceil(visits)))


def steps_of_each(visits: int, walks: int) -> int:
    """The lifetime of each of `walks` walks: ⌈K/r⌉."""
    return -(-visits // walks)


# --- overlays -------------------------------------------------------------------------------------


def surviving(mine: OverlayId, theirs: OverlayId) -> OverlayId:
    """The id both sides keep after they met."""
    return mine if mine <= theirs else theirs


def keeps_overlay(topic: Topic, mine: OverlayId, theirs: OverlayId) -> bool:
    """Whether a member keeps its overlay's id when it hears of another one."""
    return _overlay_rank(topic, mine) <= _overlay_rank(topic, theirs)


def _overlay_rank(topic: Topic, overlay: OverlayId) -> bytes:
    """A hash of the id: to get a small one, a peer must try many ids."""
    return sha256(b"%d %s" % (overlay, topic.encode())).digest()


def next_period(period: int, changed: bool, longest: int) -> int:
    """Cycles until a topic's next view exchange: each quiet one doubles it, news resets it."""
    return 1 if changed else min(longest, period * 2)
