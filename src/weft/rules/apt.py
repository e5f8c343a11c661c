"""The access point table's decisions (TERA, Section 3, "Access Points Lookup").

An advertisement for a topic replaces the topic's entry if there is one; else it is inserted with
probability 1/popularity, which cancels that popular topics are advertised more often; a random
entry makes room. From this follow the five properties that the tests check: entries are fresh,
inactive topics vanish, access points are uniform over a topic's subscribers, topics uniform
over the active ones, and the table is bounded.
"""

from __future__ import annotations

from weft.rules.draw import below


def admits(bits: int, popularity: int) -> bool:
    """Whether a topic that is not in the table enters it on this advertisement."""
    return below(bits, popularity) == 0 if popularity > 1 else True


def evicted_slot(bits: int, count: int) -> int:
    """Which of `count` entries makes room when the table is over its size."""
    return below(bits, count)


def topics_active(table_size: int, offered: int, shared: int) -> int:
    """How many topics are active, by capture and recapture (TERA 4.2.2, footnote 7).

    Tables are uniform samples of the active topics. Of `offered` topics sampled from other
    tables, `shared` were also in a table of `table_size` entries. Zero means unknown.
    """
    if offered <= 0 or shared <= 0 or table_size <= 0:
        return 0
    return max(table_size, round(table_size * offered / shared))
