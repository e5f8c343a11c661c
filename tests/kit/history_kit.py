"""A small world with history: peers with true keys, stores that outlive them, virtual time."""

from __future__ import annotations

from functools import lru_cache

from weft.documents.descriptor import (
    INCARNATION,
    NUMBER,
    SealedEvent,
    number_of,
    seal_event,
)
from weft.documents.run import NOTHING_BEFORE, Proven, Run, Statement, sign_run
from weft.documents.signature import Signer
from weft.ids import Cid, PeerId, Topic
from weft.protocol import seam
from weft.protocol.config import Config, KademliaSettings
from weft.protocol.config import HistorySettings as Settings
from weft.protocol.history.history import History
from weft.protocol.peer import Peer
from weft.sim.builder import OneTopic
from weft.sim.network import Conditions, Latency
from weft.sim.node import keyed

T = Topic("/t")


class Town(OneTopic):
    """Some peers that know each other; `settings` override those of history."""

    def __init__(
        self,
        peers: int,
        *,
        seed: int = 1,
        loss_percent: int = 0,
        latency_ms: int = 10,
        dht: bool = False,
        hierarchies: tuple[str, ...] = (),
        **settings: object,
    ) -> None:
        config = Config(
            history=Settings(enabled=True, **settings),  # type: ignore[arg-type]
            dht=KademliaSettings(enabled=dht),
            hierarchies=hierarchies,
        )
        conditions = Conditions(latency=Latency(typical_ms=latency_ms), loss_percent=loss_percent)
        super().__init__(seed, config, conditions)
        for _ in range(peers):
            self.enter([0])
        self.run(15_000)

    def peer(self, number: int) -> Peer:
        """The machine of a peer that is up."""
        machine = self.nodes[number].machine
        assert isinstance(machine, Peer)
        return machine

    def publish(self, *numbers: int, every_ms: int = 50, payload: bytes = b"event") -> None:
        """One event of each named peer, one after another."""
        for place, number in enumerate(numbers):
            self.world.publish(self.nodes[number], T, payload + b" %d" % place)
            self.run(every_ms)

    def delivered(self, number: int) -> list[tuple[int, Cid]]:
        """(life, event) as the application got them."""
        found = []
        for delivery in self.deliveries(number):
            assert delivery.descriptor is not None
            found.append((delivery.life, delivery.descriptor.cid))
        return found

    def counter(self, name: str) -> int:
        return self.counted(name)

    def answers(self) -> list[str]:
        return [p.answers[-1][1].outcome for p in self.world.record.publications.values()]


_STRANGERS = 100
_RUNS: dict[Cid, Proven] = {}
_LATEST: dict[tuple[Topic, PeerId, int, int], bytes] = {}


def forget_routed() -> None:
    """A test begins."""
    _RUNS.clear()
    _LATEST.clear()


@lru_cache
def _signers(seed: int) -> dict[PeerId, Signer]:
    made = (keyed(seed, number) for number in range(_STRANGERS))
    return {contact.peer: sign for contact, sign in made}


def routed(event: SealedEvent, seed: int = 1) -> Run:
    """The run in which its publisher, of a world of this seed, sends an event. Runs go on from each
    other in the order in which this is called for the first time in a test."""
    known = _RUNS.get(event.cid)
    if known is None:
        publisher, incarnation, number = number_of(event) or (event.publisher, 0, event.height)
        before = event.topic, publisher, incarnation, number - 1
        known = _RUNS[event.cid] = sign_run(
            _signers(seed)[publisher],
            *(event.topic, publisher, incarnation, number, event.created_ms, (event.block,)),
            _LATEST.get(before, NOTHING_BEFORE),
            sealed=True,
        )
        _LATEST[event.topic, publisher, incarnation, number] = known.digest
    return known.run


def stated(event: SealedEvent) -> Statement:
    """What the publisher of an event has signed of the run that it is routed in."""
    routed(event)
    return _RUNS[event.cid].statement()


def hear(town: Town, number: int, sender: int, message: object) -> list[seam.Effect]:
    """Hand a peer a message as if another had sent it, and see what it wants."""
    fact = seam.Received(town.nodes[sender].contact, message)  # type: ignore[arg-type]
    node = town.nodes[number]
    effects = town.peer(number).handle(fact, node.clock.local_ms(town.world.now_ms))
    town.world.carry_out(node, effects)
    return effects


def history(town: Town, number: int) -> History:
    found = town.peer(number).history
    assert found is not None
    return found


def id_of(town: Town, number: int) -> PeerId:
    return town.nodes[number].contact.peer


def follow(town: Town, owners: tuple[int, ...], *numbers: int, topic: Topic = T) -> None:
    """The users of some peers say which peers hold a topic."""
    holders = tuple(id_of(town, owner) for owner in owners)
    for number in numbers:
        town.world.ask(town.nodes[number], lambda t: seam.FollowTopic(t, topic, holders))


def newest(town: Town, number: int, topic: Topic = T) -> Cid | None:
    """The version of a topic that a peer believes."""
    version = history(town, number).versions.newest(topic)
    return version.cid if version is not None else None


def change(town: Town, number: int, topic: Topic = T, **fields: object) -> seam.Answer:
    """Let a peer change a topic, and see what it answers."""
    make = lambda token: seam.ChangeTopic(token, topic, **fields)  # type: ignore[arg-type]  # noqa: E731
    token = town.world.ask(town.nodes[number], make)
    town.run(3_000)
    found = town.world.record.answers[token]
    assert found is not None
    return found[1]


def sealed(number: int, *parents: SealedEvent, by: int = 9, created_ms: int = 0) -> SealedEvent:
    """An event of a peer outside of the town, which knows these events as the latest."""
    contact, sign = keyed(1, by)
    event = seal_event(
        sign,
        publisher=contact.peer,
        topic=T,
        payload=b"%d" % number,
        created_ms=created_ms,
        parents={event.cid: event.height for event in parents},
        metadata={INCARNATION: 1, NUMBER: number},
    )
    routed(event)  # signed in the order of its numbers
    return event
