"""What peers say to each other about whom they link to (protocol/tera: stan.py, links.py)."""

from __future__ import annotations

from typing import Annotated, TypeAlias, Union

from msgspec import Meta, Struct

from weft.ids import Contact, WireTopic
from weft.protocol.wire import Counter, Message

CANDIDATES_MAX = 64
"""guess: neighbours that one walk is asked for and carries; a view holds ln n + 4.6."""
TOPICS_MAX = 512
"""guess: fingerprints of topics in one walk."""
STEPS_MAX = 64


class Candidate(Struct, frozen=True, array_like=True, gc=False):
    """A member that may become somebody's neighbour."""

    contact: Contact
    shared: Annotated[int, Meta(ge=1, le=1 << 16)] = 1  # topics shared with the walk's origin


Candidates: TypeAlias = Annotated[list[Candidate], Meta(max_length=CANDIDATES_MAX)]


class CollectWalk(Message, frozen=True, tag=30):
    """Gathers, step by step, the members that rank first at its origin."""

    topic: WireTopic
    origin: Contact
    walk: Counter
    steps: Annotated[int, Meta(ge=0, le=STEPS_MAX)]
    wanted: Annotated[int, Meta(ge=1, le=CANDIDATES_MAX)]
    found: Candidates
    # Fingerprints of the origin's topics, only where its ranking leans to shared ones.
    topics: Annotated[list[Counter], Meta(max_length=TOPICS_MAX)] = []


class CollectReply(Message, frozen=True, tag=31):
    topic: WireTopic
    walk: Counter
    found: Candidates


class AdoptMe(Message, frozen=True, tag=32):
    """The sender is perhaps in nobody's view; answered by InLink."""

    topic: WireTopic


class InLink(Message, frozen=True, tag=35):
    """Whether the sender has the receiver in its view from now on."""

    topic: WireTopic
    held: bool
    found: bool  # whether walks find the sender otherwise than through the receiver


StanMessage: TypeAlias = Union[CollectWalk, CollectReply, AdoptMe, InLink]
