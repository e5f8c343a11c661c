"""Whatever is said about history, in whatever order, true blocks among it: a peer never fails, its
tables stay within their bounds, and nothing is delivered twice or before it was checked.

A lone peer with tiny limits hears random messages of a few others. Half of them name or bring true
blocks of a stream that was made beforehand, half are made up.
"""

from __future__ import annotations

import heapq
from itertools import count
from random import Random

import pytest

from arbitrary import random_message
from history_kit import routed
from weft.documents import record
from weft.documents.dag import Stream
from weft.documents.descriptor import SealedEvent, TopicVersion, seal_event, seal_topic
from weft.ids import Cid, Topic, cid_of
from weft.protocol import messages as m
from weft.protocol import seam
from weft.protocol.config import Config, HistorySettings, KademliaSettings, Keep
from weft.protocol.history.blocks import BlocksReply, BlocksRequest
from weft.protocol.history.ownership import TopicNews
from weft.protocol.history.reader import PageReply, PageRequest
from weft.protocol.history.stream import Head, Heads
from weft.protocol.liveness import Ping, Pong
from weft.protocol.peer import Peer
from weft.protocol.wire import Payload
from weft.sim.node import keyed
from weft.store.interface import Batch
from weft.store.memory import MemoryStore

T = Topic("/a")
OTHERS = [keyed(3, number) for number in range(1, 5)]
KINDS = (Heads, BlocksRequest, BlocksReply, PageRequest, PageReply, TopicNews)
LIMITS = HistorySettings(
    enabled=True,
    wants_max=12,
    wants_per_source_max=8,
    early_max=4,
    held_max=4,
    waiting_bytes_max=2_000,
    outside_max=2,
    requests_max=3,
    blocks_per_request=3,
    walk_back_max=4,
    give_up_ms=20_000,
    retry_ms=1_000,
    prune_every_ms=5_000,
    topics_every_ms=10_000,
    keep=Keep(events=30),
)


def versions() -> list[TopicVersion]:
    (anna, sign), (ben, _) = OTHERS[:2]
    first = seal_topic(
        sign, author=anna.peer, name=T, created_ms=1, allowed=[ben.peer], sub_topics={}
    )
    second = seal_topic(
        sign, author=anna.peer, name=T, created_ms=2, allowed=[], parent=first.cid, sub_topics={}
    )
    return [first, second]


def stream_of_blocks(rng: Random, made: list[TopicVersion]) -> list[SealedEvent]:
    """A stream that forks and joins, some of it under an owner."""
    stream, events = Stream(), []
    for number in range(60):
        contact, sign = rng.choice(OTHERS)
        parents = dict(rng.sample(sorted(stream.heads.items()), min(2, len(stream.heads))))
        event = seal_event(
            sign,
            publisher=contact.peer,
            topic=T,
            payload=rng.randbytes(rng.choice((3, 300))),
            created_ms=number,
            parents=parents,
            link=rng.choice((None, None, made[0].cid, made[1].cid)),
            metadata={"incarnation": 1, "number": number + 1},
        )
        stream.add(event)
        events.append(event)
    return events


class Lone:
    """One peer with history, its timers, its disk, and what it delivered."""

    def __init__(self, seed: int) -> None:
        self.rng = Random(seed)
        self.made = versions()
        self.events = stream_of_blocks(self.rng, self.made)
        for event in self.events:
            routed(event, seed=3)  # signed in the order of their numbers
        self.blocks = [event.block for event in self.events] + [v.block for v in self.made]
        (anna, sign) = OTHERS[0]
        self.records = [
            record.seal(
                sign,
                signer=anna.peer,
                holders=[anna.peer],
                topic=T,
                value=version.cid,
                sequence=number,
                now_ms=0,
            ).encoded
            for number, version in enumerate(self.made, 1)
        ]
        contact, mine = keyed(3, 0)
        self.store = MemoryStore()
        config = Config(history=LIMITS, dht=KademliaSettings(enabled=seed % 2 == 0))
        self.peer = Peer(contact, seed, config, self.store, mine)
        self.now = 0
        self.queue: list[tuple[int, int, seam.Input]] = []
        self.order = count()
        self.delivered: list[Cid] = []
        self.asked: list[m.AnyMessage] = []
        self.do(seam.Started(1, (OTHERS[0][0],)))

    def do(self, fact: seam.Input) -> None:
        for effect in self.peer.handle(fact, self.now):
            if isinstance(effect, seam.SetTimer):
                self.later(effect.after_ms, seam.TimerFired(effect.timer))
            elif isinstance(effect, seam.Store):
                self._store(effect)
            elif isinstance(effect, seam.Prune):
                dropped = self.store.prune(effect.topic, effect.retention, self.now)
                self.later(5, seam.Pruned(effect.topic, dropped))
            elif isinstance(effect, seam.Deliver) and effect.descriptor is not None:
                self.delivered.append(effect.descriptor.cid)
            elif isinstance(effect, seam.Send) and isinstance(effect.message, Ping):
                pong = Pong(effect.message.nonce, effect.message.links)  # the others live
                self.later(40, seam.Received(effect.to, pong))
            elif isinstance(effect, seam.Send):
                self.asked = [*self.asked, effect.message][-20:]
        self.check()

    def _store(self, effect: seam.Store) -> None:
        if self.rng.random() < 0.05:
            self.later(3, seam.Stored(effect.token, "no room"))
            return
        batch = Batch(
            self.now,
            effect.events,
            effect.topics,
            effect.records,
            effect.lost,
            effect.beginnings,
        )
        self.store.commit([batch])
        self.later(3, seam.Stored(effect.token))

    def later(self, after_ms: int, fact: seam.Input) -> None:
        heapq.heappush(self.queue, (self.now + after_ms, next(self.order), fact))

    def wait(self, milliseconds: int) -> None:
        until = self.now + milliseconds
        while self.queue and self.queue[0][0] <= until:
            self.now, _, fact = heapq.heappop(self.queue)
            self.do(fact)
        self.now = until

    def check(self) -> None:
        history = self.peer.history
        assert history is not None
        assert len(history.fetch) <= LIMITS.wants_max
        assert len(history.fetch.requests) <= LIMITS.requests_max
        held = history.versions.held(T)
        assert held is None or len(held.versions) <= len(held) <= LIMITS.held_max
        assert held is None or 0 < held.bytes <= LIMITS.waiting_bytes_max
        assert len(history.streams.outside) <= LIMITS.outside_max
        assert sum(history.fetch.per_source.values()) <= LIMITS.wants_max
        for reader in history.readers.values():
            assert len(reader.stream.early) <= LIMITS.early_max
        assert len(self.delivered) == len(set(self.delivered)), "delivered twice"

    # --- what others say --------------------------------------------------------------------------

    def cid(self) -> Cid:
        if self.rng.random() < 0.2:
            return cid_of(self.rng.randbytes(4))
        return cid_of(self.rng.choice(self.blocks))

    def some_blocks(self) -> list[bytes]:
        chosen = [self.rng.choice(self.blocks) for _ in range(self.rng.randrange(5))]
        return [b"junk" if self.rng.random() < 0.1 else block for block in chosen]

    def head(self) -> Head:
        heights = {event.cid: event.height for event in self.events}
        cid = self.cid()
        wild = self.rng.choice((0, 1, 99, 1 << 40, (1 << 63) - 1))
        return Head(cid, heights.get(cid, wild) if self.rng.random() < 0.8 else wild)

    def answer(self) -> m.AnyMessage | None:
        """Something that answers what the peer asked, truly or not."""
        question = self.rng.choice(self.asked) if self.asked else None
        rng = self.rng
        if isinstance(question, BlocksRequest):
            by_cid = {cid_of(block): block for block in self.blocks}
            found = [by_cid[cid] for cid in question.cids if cid in by_cid and rng.random() < 0.8]
            lacking = [cid for cid in question.cids if rng.random() < 0.2]
            return BlocksReply(question.topic, question.request, found, lacking)
        if isinstance(question, PageRequest):
            start = rng.randrange(len(self.events))
            page = [event.block for event in self.events[start : start + rng.randrange(9)]]
            following = self.head() if rng.random() < 0.5 else None
            flags = rng.random() < 0.2, rng.random() < 0.9
            return PageReply(question.topic, question.request, page, following, *flags)
        return None

    def heard(self) -> m.AnyMessage:
        rng = self.rng
        answer = self.answer() if rng.random() < 0.5 else None
        if answer is not None:
            return answer
        choice = rng.randrange(9)
        if choice == 0:
            return Heads(T, [self.head() for _ in range(rng.randrange(5))], rng.random() < 0.5)
        if choice == 1:
            return BlocksRequest(T, 1, [self.cid() for _ in range(rng.randrange(5))])
        if choice == 2:
            return BlocksReply(T, rng.randrange(9), self.some_blocks())
        if choice == 3:
            return PageRequest(T, 1, heads=[self.cid() for _ in range(rng.randrange(3))])
        if choice == 4:
            return TopicNews(T, rng.choice((b"junk", *self.records)))
        if choice <= 6:
            return Payload(T, routed(rng.choice(self.events), seed=3), 1)
        return random_message(rng.choice(KINDS), rng, T)


OPEN = 350
"""Steps before the topic may get an owner that lets few of these publish."""
CLOSED = (2,)
"""Seeds in which it has got one."""


TALKS = [0, *range(2, 10), 11, 12]
"""Seeds; in those of 1 and 10 no event happens to come after all its parents."""


@pytest.mark.parametrize("seed", TALKS)
def test_no_conversation_about_history_hurts(seed: int) -> None:
    lone = Lone(seed)
    rng = lone.rng
    for step in range(600):
        choice = rng.randrange(100)
        if choice < 80:
            lone.do(seam.Received(rng.choice(OTHERS)[0], lone.heard()))
        elif choice < 84:
            since = rng.choice((None, "beginning", lone.cid(), 5))
            lone.do(seam.Subscribe(1, T, None, since))
        elif choice < 86:
            lone.do(seam.Unsubscribe(1, T))
        elif choice < 89:
            lone.do(seam.Publish(2, rng.choice((T, Topic("/b"))), (b"mine",), 0))
        elif choice < 91 and step < OPEN:
            continue
        elif choice < 90:
            lone.do(seam.ChangeTopic(3, T, create=rng.random() < 0.5, anyone=rng.random() < 0.5))
        elif choice < 91:
            lone.do(seam.FollowTopic(4, T, (rng.choice(OTHERS)[0].peer,)))
        elif choice < 93:
            lone.do(seam.PeerLost(rng.choice(OTHERS)[0].peer))
        else:
            lone.wait(rng.choice((1, 50, 600, 4_000)))
    lone.wait(60_000)
    history = lone.peer.history
    assert history is not None and history.status()
    assert lone.delivered
    if seed in CLOSED:
        assert lone.peer.counters["history_refused_not_allowed"]
