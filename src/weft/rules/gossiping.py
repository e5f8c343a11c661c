"""Gossip among the members of a topic: how many to tell, and whom (Baehni and others, 5.1).

*Push*: whoever gets an event for the first time tells ln n + c members of its view. Then everybody
has it with probability exp(−e^−c) if the view is a uniform sample (Kermarrec, Massoulié, Ganesh
2003), by n·(ln n + c) messages.

*Push-pull*: first receivers tell only a few, which reaches most members; then everybody calls one
random member per round, and the two compare what they have. Who lacks the event meets somebody who
has it with probability 1 − ε, where ε is the share that lacks it, so ε is squared in every round:
about log₂ log₂ n rounds of n calls, and hardly more than the first few·n copies of the event
(Karp, Schindelhauer, Shenker, Vöcking 2000).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Literal, TypeAlias, TypeVar

from weft.rules.draw import slots_in, subset_mask

Mode: TypeAlias = Literal["push", "push-pull"]
Member = TypeVar("Member")

PUSH_MARGIN = 3
"""guess: c of ln n + c; everybody is reached by the push alone 19 times in 20."""
FEW = 3
"""guess: whom first receivers tell under push-pull; the push alone reaches 94 % of the members."""


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
    """Rounds in which everybody calls somebody after an event: log₂ log₂ n, and two to spare."""
    return math.ceil(math.log2(max(2.0, math.log2(max(2, members))))) + 2
