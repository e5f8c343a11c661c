"""What tests of StaN's kernel share, in several folders."""

from __future__ import annotations

import numpy as np

from weft.engine.core.arrays import Ids
from weft.engine.stan.overlays import Outcome


def views_of(outcome: Outcome, topic: int, round_: int) -> Ids:
    """One topic's views, a row per member."""
    overlays = outcome.overlays
    at = int(np.searchsorted(overlays.topics, topic))
    starts, view = outcome.starts(), int(overlays.views()[at])
    members = int(overlays.sizes()[at])
    return outcome.at(round_)[starts[at] : starts[at + 1]].reshape(members, view)
