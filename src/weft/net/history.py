"""History and owned topics of a running peer, for applications: `peer.history`, `peer.owned`.

    orders = peer.owned.name("/orders")  # carries this peer's key: nobody else can own it
    cid = await peer.owned.create(orders, publishers=[other.id])
    await peer.owned.revoke(orders, other.id)
    for event in peer.history.read("/sports", since="beginning", limit=10): ...
    value = await peer.history.get(f"/{cid}/owners/0")

Both need a store: `Peer.open(store=…)`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from itertools import islice
from os import PathLike
from typing import BinaryIO

from msgspec import Struct
from msgspec.structs import asdict

from weft import private
from weft.documents import merkle, record
from weft.documents.authority import made_from
from weft.documents.descriptor import SealedEvent, TopicVersion
from weft.documents.refusal import Refused
from weft.ids import (
    BadId,
    Cid,
    PeerId,
    Topic,
    cid_text,
    owned_name,
    parse_cid,
    parse_peer,
    parse_plain_topic,
    parse_topic,
    peer_text,
)
from weft.net.arguments import number_in, text_in, texts_in
from weft.net.dht import Dht
from weft.net.errors import HistoryError, UsageError, usable
from weft.net.runtime import Runtime
from weft.protocol import seam
from weft.protocol.peer import Peer as Machine
from weft.rules.hierarchy import root_in
from weft.rules.prefix import BLOCK, DIGEST_BYTES
from weft.store.interface import Since, Store
from weft.store.reader import read_all, read_through

_FETCHES_MAX = 64
"""guess: blocks fetched for one path."""

Keys = str | Iterable[str]


class TopicInfo(Struct, frozen=True):
    """An owned topic, by the newest version that this peer knows."""

    topic: str
    cid: str  # of its newest version
    owners: tuple[str, ...]
    publishers: tuple[str, ...] | None  # beside the owners; None: anyone
    sub_topics: dict[str, str]  # the last segment of each name, and the CID of its version
    parent: str  # the version before, or empty
    sequence: int
    record: str  # the name of its record, as in the DHT
    mine: bool  # whether this peer may change it
    hierarchy: str  # the root of the hierarchy that its owners put it in, or empty
    asked: dict[str, str]  # sub-topics that this owner was asked for, and by which peer
    made_from: str  # the topic whose descriptor it was made from, or empty
    made_from_version: str  # the CID of that descriptor, or empty

    def as_dict(self) -> dict[str, object]:
        return asdict(self)


class Owned:
    """Topics with owners: made, changed and followed."""

    def __init__(self, runtime: Runtime, machine: Machine) -> None:
        self._runtime = runtime
        self._machine = machine

    async def create(
        self,
        topic: str,
        publishers: Keys = (),
        owners: Keys = (),
        anyone: bool = False,
        hierarchy: bool = False,
        made_from: str = "",
    ) -> str:
        """Make this peer the owner of a topic; returns the CID of the first version. The owners and
        the peers in `publishers` may publish, or `anyone`. Further `owners` may change the topic,
        too. With `hierarchy` its subscribers also get the events of sub-topics added to it.

        `made_from` is another topic, of any owner, or the CID of a version of it: the part of its
        stream that is known here comes before the new topic's own (`History.read_through`).

        If the name carries this peer's key (`name`), every peer knows the owner; for any other name
        each peer believes the owners that its user told it (`follow`)."""
        usable(parse_plain_topic, topic)
        change = partial(
            seam.ChangeTopic,
            create=True,
            owners=_keys("owners", owners),
            anyone=anyone,
            allow=_keys("publishers", publishers),
            hierarchy=hierarchy,
            made_from=self._version(made_from) if made_from else None,
        )
        return await self._change(topic, change)

    def _version(self, named: str) -> Cid:
        """The version that a CID names, or the newest known version of a topic."""
        if not text_in("made_from", named).startswith("/"):
            return usable(parse_cid, named)
        info = self.info(named)
        if info is None:
            raise HistoryError(
                f"no version of {named} is known here to make a topic from; follow its owners first"
            )
        return parse_cid(info.cid)

    async def allow(self, topic: str, publishers: Keys) -> str:
        """Let other peers publish, too; the CID of the new version."""
        allowed = _keys("publishers", publishers)
        return await self._change(topic, partial(seam.ChangeTopic, allow=allowed))

    async def revoke(self, topic: str, publishers: Keys) -> str:
        """Stop letting these peers publish; the events they have published stay."""
        revoked = _keys("publishers", publishers)
        return await self._change(topic, partial(seam.ChangeTopic, revoke=revoked))

    async def restrict(self, topic: str, anyone: bool = False) -> str:
        """Let only owners and allowed publishers publish from now on, or `anyone` again."""
        return await self._change(topic, partial(seam.ChangeTopic, anyone=anyone))

    async def add_subtopic(self, topic: str, segment: str) -> str:
        """Add the sub-topic `topic/segment` to a topic; it is made if it does not exist."""
        usable(parse_topic, f"{topic}/{segment}")
        return await self._change(topic, partial(seam.ChangeTopic, sub_topic=segment))

    async def ask_subtopic(self, topic: str, segment: str) -> str:
        """Ask the owners of a topic for the sub-topic `topic/segment`: "granted", or "waiting" if
        one of them has to agree first. `HistoryError` says why not."""
        name = usable(parse_topic, topic)
        usable(parse_topic, f"{topic}/{segment}")
        answer = await self._runtime.ask(lambda token: seam.AskSubTopic(token, name, segment))
        if answer.outcome not in ("stored", "queued"):
            raise HistoryError(answer.reason or f"the owners were not asked: {answer.outcome}")
        return "granted" if answer.outcome == "stored" else "waiting"

    def name(self, path: str) -> str:
        """A name that carries this peer's key: `name("/orders")` is `/~12D3KooW.../orders`. Every
        peer knows the owner from such a name."""
        return usable(lambda text: owned_name(self._machine.me.peer, text), path)

    def claims(self, topic: str) -> list[tuple[str, ...]]:
        """The peers that say that they own a topic, without a proof: `follow` those that you
        believe."""
        name = usable(parse_topic, topic)
        found = self._machine.history.ownership.claims(name) if self._machine.history else []
        return [tuple(map(peer_text, holders)) for holders in found]

    def believed(self, topic: str) -> tuple[str, ...]:
        """The owners of a topic that this peer goes by: from its name, from a topic above it, or
        because they are followed. Empty if none are known; then anybody may publish."""
        name = usable(parse_topic, topic)
        history = self._machine.history
        holders = history.versions.holders(name) if history is not None else None
        return tuple(map(peer_text, holders or ()))

    async def follow(self, topic: str, owners: Keys) -> bool:
        """Believe these owners (name all of them) and no other peer about a topic. Returns whether
        its newest version is known already; if not, a subscriber gets it from other members, and
        any other peer from the DHT."""
        name, holders = usable(parse_topic, topic), _keys("owners", owners)
        if not holders:
            raise UsageError("following a topic needs its owners' peer ids")
        answer = await self._runtime.ask(lambda token: seam.FollowTopic(token, name, holders))
        if answer.outcome in ("refused", "failed"):
            raise HistoryError(answer.reason)
        return answer.outcome == "found"

    async def _change(self, topic: str, change: Callable[[int, Topic], seam.ChangeTopic]) -> str:
        name = usable(parse_topic, topic)
        answer = await self._runtime.ask(lambda token: change(token, name))
        if answer.outcome != "stored" or answer.value is None:
            raise HistoryError(answer.reason or f"the topic was not changed: {answer.outcome}")
        return cid_text(Cid(answer.value))

    def info(self, topic: str) -> TopicInfo | None:
        """The owners and the newest version of a topic; None if it has no known owner."""
        history = self._machine.history
        if history is None:
            raise HistoryError("owned topics need a store: open the peer with store=…")
        name = usable(parse_topic, topic)
        version, found = history.versions.newest(name), history.ownership.record(name)
        if version is None or found is None:
            return None
        return info_of(version, found, self._machine.me.peer, history.wishes.of(name))


def info_of(
    version: TopicVersion,
    found: record.Record,
    me: PeerId | None,
    asked: Mapping[str, PeerId] | None = None,
) -> TopicInfo:
    allowed, origin = version.allowed, made_from(version)
    return TopicInfo(
        topic=version.name,
        cid=cid_text(version.cid),
        owners=tuple(map(peer_text, version.owners)),
        publishers=None if allowed is None else tuple(map(peer_text, allowed)),
        sub_topics={name: cid_text(cid) for name, cid in version.sub_topics.items()},
        parent=cid_text(version.parent) if version.parent is not None else "",
        sequence=found.sequence,
        record=record.name_text(found.name),
        mine=me is not None and me in found.holders,
        hierarchy=root_in(version.metadata, version.name) or "",
        asked={name: peer_text(peer) for name, peer in (asked or {}).items()},
        made_from=origin.topic if origin is not None else "",
        made_from_version=cid_text(origin.version) if origin is not None else "",
    )


class History:
    """The events and documents in a peer's store, to read and to export."""

    def __init__(self, store: Store | None, machine: Machine, dht: Dht) -> None:
        self._store = store
        self._machine = machine
        self._dht = dht if machine.dht is not None else None

    @property
    def store(self) -> Store:
        if self._store is None:
            raise HistoryError("history needs a store: open the peer with store=…")
        return self._store

    def read(
        self, topic: str, since: Since = "beginning", limit: int | None = None
    ) -> Iterator[SealedEvent]:
        """Events that are stored here, in the stream's order; see `store.reader` for `since`."""
        events = read_all(self.store, usable(parse_topic, topic), since)
        return islice(events, _limit(limit))

    def read_through(
        self, topic: str, since: Since = "beginning", limit: int | None = None
    ) -> Iterator[SealedEvent]:
        """As `read`, but the events of the topic that this one was made from come first, as far as
        they are stored here: subscribe to that topic to have them."""
        events = read_through(self.store, usable(parse_topic, topic), since)
        return islice(events, _limit(limit))

    async def get(self, path: str) -> object:
        """The value or the document that a merkle path (`CID/field/…`) leads to. With a DHT, blocks
        that are not stored here are fetched; each is checked."""
        path = text_in("the path", path)
        fetched: dict[Cid, bytes] = {}
        while True:
            try:
                return merkle.resolve(path, lambda cid: fetched.get(cid) or self._block(cid))
            except merkle.Unresolved as problem:
                missing = problem.missing
                if missing is None or missing in fetched or self._dht is None:
                    raise HistoryError(str(problem)) from problem
                if len(fetched) >= _FETCHES_MAX:
                    raise HistoryError("the path leads through too many blocks") from problem
                fetched[missing] = await self._fetch(missing, problem)
            except Refused as refused:
                raise HistoryError(f"a block on the way was refused: {refused}") from refused
            except BadId as error:
                raise UsageError(str(error)) from error

    def _block(self, cid: Cid) -> bytes | None:
        """A block that is stored, or on its way to the store."""
        history = self._machine.history
        return history.server.block(cid) if history is not None else self.store.get(cid)

    async def _fetch(self, cid: Cid, problem: Exception) -> bytes:
        assert self._dht is not None
        block = await self._dht.get(bytes((BLOCK,)) + cid[-DIGEST_BYTES:])
        if block is None:
            raise HistoryError(str(problem)) from problem
        return block

    def export(self, topic: str, file: BinaryIO | PathLike[str], since: Since = "beginning") -> int:
        """Write a topic's stream as a CAR file; how many bytes. A file given by its path is for its
        owner alone, and appears when it is whole."""
        if isinstance(file, PathLike):
            from pathlib import Path  # noqa: PLC0415  (loaded once a file is named)

            with private.draft_of(Path(file), replace=True) as draft:
                return self.export(topic, draft, since)
        from weft.store import car  # noqa: PLC0415

        return sum(
            file.write(piece) for piece in car.export(self.store, usable(parse_topic, topic), since)
        )


def _limit(limit: int | None) -> int | None:
    return None if limit is None else number_in("limit", limit)


def _keys(name: str, keys: Keys) -> tuple[PeerId, ...]:
    return tuple(usable(parse_peer, key) for key in texts_in(name, keys))
