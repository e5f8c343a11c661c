"""What a peer does against hostile ones: which defences are on."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Config:
    """Defences against hostile peers. All are on; the attack rows of the lab switch one off at a
    time, to show what it is for."""

    views: bool = True  # what others say of third peers is bounded, and proven before it counts
    links: bool = True  # links are given up with a reason, and a part of them is chosen by oneself
    score: bool = True  # links that bring nothing first are given up
    access: bool = True  # a publisher from outside hears of its event from members
    rates: bool = True  # what one peer may cause is bounded by kind
    claims: bool = True  # sizes, overlays, roles: only from peers that were asked, or are close
