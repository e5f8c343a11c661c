"""How events find their subscribers: what a peer asks of any routing.

A routing is one object of the peer. It sees the messages, timers and signals of its own kinds, by
the tables it hands over once, and is told what happens below it: the peer got into the network,
a peer is lost, a link stands, a cycle begins. The peer owns what all routings need: the general
overlay, liveness of linked peers, the DHT, delivery, and publishing from outside of a topic. It
makes the routing that the settings ask for (`peer.py`).
"""

# ruff: noqa: B027 (methods that do nothing are the defaults that most routings keep)

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from typing import TypeAlias

from weft.documents.run import Proven
from weft.ids import Contact, PeerId, Topic
from weft.protocol.context import (
    Context,
    FarBehind,
    Handlers,
    LinkDown,
    LinkUp,
    LookupDone,
    Signals,
    Timers,
)
from weft.protocol.delivery import Delivery
from weft.protocol.membership import Advert
from weft.protocol.recent import Recent
from weft.protocol.seam import Scheme

Due: TypeAlias = Callable[[Topic], None]

NO_LINKS = {"logical": 0, "physical": 0, "ranked_logical": 0, "ranked_physical": 0}


class Routing(ABC):
    """One peer's part in a routing. What has a body here need not be overridden."""

    shares_events = False
    """Whether one event in several topics may be sent by reference (`multi_topic.py`)."""
    finds_several = False
    """Whether one lookup may find several members, each by its own word."""

    def __init__(self, ctx: Context, delivery: Delivery) -> None:
        self._ctx = ctx
        self._delivery = delivery

    # --- what it listens to, asked once -----------------------------------------------------------

    @abstractmethod
    def handlers(self) -> Handlers:
        """The handlers of this routing's messages; view exchanges and joins of the general overlay
        never come here, those about topics do."""

    def timers(self) -> Timers:
        return {}

    def signals(self) -> Signals:
        """Signals that only layers of this routing tell."""
        return {}

    # --- the user's wishes ------------------------------------------------------------------------

    @property
    @abstractmethod
    def subscribed(self) -> list[Topic]: ...

    @abstractmethod
    def is_subscribed(self, topic: Topic) -> bool: ...

    def scheme_problem(self, topic: Topic, scheme: Scheme | None) -> str:
        """Why events of a topic cannot spread here by the scheme that a subscription asks for;
        empty if they can. Most routings leave nothing to choose."""
        if scheme is None:
            return ""
        return f"a subscription cannot choose a scheme with the routing {self._ctx.config.routing}"

    @abstractmethod
    def subscribe(self, token: int, topic: Topic, scheme: Scheme | None, hopeful: bool) -> None:
        """`scheme` is one that `scheme_problem` has nothing against. `hopeful`: the peer is just
        entering the network, `on_entered` follows."""

    @abstractmethod
    def unsubscribe(self, token: int, topic: Topic) -> None: ...

    @abstractmethod
    def publish(self, topic: Topic, proven: Proven, delivered: bool) -> bool:
        """Spread a run of this peer's own, deliver it here unless that is done; False if it must be
        handed to a peer that can (`publication.py`)."""

    def collect(self) -> None:
        """Look for better links now."""

    def close(self) -> None:
        """This peer leaves. `peer.py` tells the peers that it is linked to."""

    # --- finding a peer that takes events from outside (`publication.py`) ------------------------

    def find(self, topic: Topic, avoid: Iterable[PeerId] = ()) -> int:
        """Begin a lookup; `LookupDone` with the returned number follows, perhaps at once."""
        number = self._ctx.next_serial()
        self._ctx.tell(LookupDone(number, topic, ()))
        return number

    def provides(self, key: bytes) -> bool:
        """Whether this peer is one that a lookup in the DHT for this key of the routing seeks."""
        return False

    def forget_entry(self, topic: Topic, peer: PeerId) -> None:
        """The peer that a lookup found takes no events."""

    # --- what happens below -----------------------------------------------------------------------

    def start(self) -> None:
        """The peer is up, and about to enter the network."""

    def on_entered(self) -> None:
        """The peer got into the network, or gives up hope and stays outside for now."""

    @abstractmethod
    def on_peer_lost(self, peer: PeerId) -> None: ...

    def on_peer_doubted(self, peer: PeerId) -> None:
        """A peer has not answered and may be gone: ask another one where that is possible."""

    def on_peer_back(self, contact: Contact, topics: Sequence[Topic]) -> None:
        """A peer that was lost for its silence speaks again; it was linked in these topics."""

    def on_link_up(self, signal: LinkUp) -> bool:
        """A link stands, and is watched. Returns whether to compare streams over it (history)."""
        return False

    def on_link_down(self, signal: LinkDown) -> None: ...

    def on_far_behind(self, signal: FarBehind) -> None:
        """With history: this peer has no use for new events of a topic yet, or has again."""

    @abstractmethod
    def run_cycle(self, cycle: int, due: Due) -> None:
        """A cycle begins; the routing calls `due` with each topic whose turn it is."""

    # --- what travels with the general overlay's messages -----------------------------------------

    def sample(self) -> list[int]:
        """Fingerprints of topics to send along with a view exchange."""
        return []

    def on_sample(self, sample: list[int]) -> None: ...

    def adverts_for(self, contact: Contact) -> list[Advert]:
        """The topics of this peer to tell another, along with a view exchange."""
        return []

    def on_adverts(self, sender: Contact, adverts: list[Advert]) -> None: ...

    def welcome(self, newcomer: Contact) -> None:
        """A newcomer enters the network by way of this peer."""

    # --- looking at it ----------------------------------------------------------------------------

    @abstractmethod
    def members(self, topic: Topic) -> list[Contact]:
        """Other subscribers that this peer knows, linked ones first."""

    @abstractmethod
    def recent(self, topic: Topic) -> Recent | None:
        """What this peer has seen of a topic lately; None: it has no part in it."""

    @abstractmethod
    def alone(self, topic: Topic) -> bool:
        """Whether there seems to be no other subscriber."""

    def reaches_others(self, topic: Topic) -> bool:
        """Whether events that this peer spreads in a topic reach any other peer now."""
        return not self.alone(topic)

    @abstractmethod
    def links(self) -> dict[Topic, list[PeerId]]:
        """Peers whose liveness is watched for a topic's sake."""

    def link_counts(self) -> dict[str, int]:
        """As `NO_LINKS`: logical and physical links, of those that carry events and as ranked."""
        return NO_LINKS

    @property
    def access_points(self) -> int:
        """How many access points this peer knows."""
        return 0

    @abstractmethod
    def status(self) -> dict[str, object]:
        """Its part of `Peer.status`."""
