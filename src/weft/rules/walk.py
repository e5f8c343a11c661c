"""Random walks that look for an access point (TERA, Sections 3 and 4.2.2).

A lookup sends r walks through the general overlay; each visited peer answers from its access
point table. K counts the visits of all walks together; each walk lives ⌈K/r⌉ steps.
"""

from __future__ import annotations

import math


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
