"""A hostile peer: a contact with a key of its own that says to the peers of a town whatever a test
writes down, and answers their questions for blocks with what it has made."""

from __future__ import annotations

from history_kit import T, Town, history, routed
from weft.documents import record as records
from weft.documents.dagcbor import Scalar
from weft.documents.descriptor import SealedEvent, TopicVersion, seal_event, seal_topic
from weft.ids import Cid, PeerId, Topic
from weft.protocol import seam
from weft.protocol.history.blocks import BlocksReply, BlocksRequest
from weft.protocol.history.ownership import TopicNews
from weft.protocol.wire import Payload
from weft.sim.node import keyed


class Stranger:
    """It has the key and the address of one of the town's peers, which takes no part itself."""

    def __init__(self, town: Town, number: int) -> None:
        self.town = town
        self.contact, self._sign = keyed(1, number)
        self.peer = self.contact.peer
        assert self.contact == town.nodes[number].contact
        self._blocks: dict[Cid, bytes] = {}
        self._events = 0

    # --- what it makes ----------------------------------------------------------------------------

    def version(
        self,
        topic: Topic = T,
        *,
        allowed: tuple[PeerId, ...] | None = (),
        owners: tuple[PeerId, ...] = (),
        parent: Cid | None = None,
        sub_topics: dict[str, Cid] | None = None,
        metadata: dict[str, Scalar] | None = None,
    ) -> TopicVersion:
        made = seal_topic(
            self._sign,
            author=self.peer,
            name=topic,
            created_ms=1,
            owners=owners,
            allowed=allowed,
            parent=parent,
            sub_topics=sub_topics,
            metadata=metadata,
        )
        self._blocks[made.cid] = made.block
        return made

    def record(
        self, version: TopicVersion, sequence: int = 1, holders: tuple[PeerId, ...] = ()
    ) -> TopicNews:
        made = records.seal(
            self._sign,
            signer=self.peer,
            holders=holders or version.owners,
            topic=version.name,
            value=version.cid,
            sequence=sequence,
            now_ms=self.town.world.now_ms,
        )
        return TopicNews(version.name, made.encoded)

    def event(self, link: Cid | None = None, topic: Topic = T) -> SealedEvent:
        self._events += 1
        return seal_event(
            self._sign,
            publisher=self.peer,
            topic=topic,
            payload=b"x",
            created_ms=1,
            link=link,
            metadata={"incarnation": 1, "number": self._events},
        )

    def forget(self, cid: Cid) -> None:
        """It does not give this block away any more."""
        del self._blocks[cid]

    # --- what it says -----------------------------------------------------------------------------

    def say(self, number: int, message: object) -> None:
        """Say something to a peer, and answer what it asks about blocks."""
        node = self.town.nodes[number]
        now = node.clock.local_ms(self.town.world.now_ms)
        fact = seam.Received(self.contact, message)  # type: ignore[arg-type]
        questions: list[BlocksRequest] = []
        others: list[seam.Effect] = []
        for effect in self.town.peer(number).handle(fact, now):
            if isinstance(effect, seam.Send) and effect.to.peer == self.peer:
                if isinstance(effect.message, BlocksRequest):
                    questions.append(effect.message)
            else:
                others.append(effect)
        self.town.world.carry_out(node, others)
        for question in questions:
            found = [self._blocks[cid] for cid in question.cids if cid in self._blocks]
            lacking = [cid for cid in question.cids if cid not in self._blocks]
            self.say(number, BlocksReply(question.topic, question.request, found, lacking))

    def push(self, number: int, event: SealedEvent) -> None:
        self.say(number, Payload(event.topic, routed(event), 1))

    def is_believed(self, number: int, topic: Topic = T) -> bool:
        version = history(self.town, number).versions.newest(topic)
        return version is not None and version.author == self.peer
