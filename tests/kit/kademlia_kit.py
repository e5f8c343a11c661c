"""What the tests of the DHT share: small settings, one peer with scripted neighbours, groups."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from protocol_kit import Group, Rig, contact, number_of, sent
from weft.ids import GENERAL, Contact, PeerId
from weft.protocol import seam
from weft.protocol.config import Config, KademliaSettings
from weft.protocol.kademlia.kademlia import Kademlia
from weft.protocol.kademlia.rpc import FindReply, FindRequest, Neighbour
from weft.protocol.peer import Peer
from weft.rules.prefix import as_bytes, closest, location_of

ON = KademliaSettings(enabled=True)


def dht(**changes: Any) -> KademliaSettings:
    return replace(ON, **changes)


def rig(settings: KademliaSettings = ON, *known: int) -> Rig:
    """A peer whose table holds these."""
    one = Rig(1, Config(dht=settings))
    one.meet(*known)
    for number in known:
        one.hear(number, request(0))
    return one


def machine(of: Rig | Peer) -> Kademlia:
    peer = of.peer if isinstance(of, Rig) else of
    assert peer.dht is not None
    return peer.dht


def location(number: int) -> int:
    return location_of(contact(number).peer)


def request(number: int, target: int = 0, want: int = 0, key: bytes = b"") -> FindRequest:
    return FindRequest(number, 0, GENERAL, GENERAL, as_bytes(target), want, key)


def told(*numbers: int) -> list[Neighbour]:
    return [Neighbour(contact(number)) for number in numbers]


def reply(to: FindRequest, *numbers: int, **more: Any) -> FindReply:
    return FindReply(to.request, True, told(*numbers), **more)


def by_distance(target: int, numbers: list[int]) -> list[int]:
    by_location = {location(number): number for number in numbers}
    return [by_location[key] for key in closest(target, by_location, len(numbers))]


def asked(effects: list[seam.Effect]) -> list[tuple[int, FindRequest]]:
    return sent(effects, FindRequest)


def answer(effects: list[seam.Effect], token: int) -> seam.Answer | None:
    found = [e for e in effects if isinstance(e, seam.Answer) and e.token == token]
    assert len(found) <= 1, "a command is answered once"
    return found[0] if found else None


def numbers(contacts: tuple[Contact, ...]) -> list[int]:
    return [number_of(one) for one in contacts]


class Network(Group):
    """Peers with the DHT on, which know each other's neighbourhoods."""

    def __init__(self, size: int, settings: KademliaSettings = ON) -> None:
        super().__init__(size, Config(dht=settings), checked=False)
        self.tokens = 100
        self.run(60_000, steps_max=2_000_000)

    def ask(self, number: int, make: Any, patience_ms: int = 60_000) -> seam.Answer:
        """Give a command and wait for its answer."""
        self.tokens += 1
        token = self.tokens
        self.effects[number] = []
        self.do(number, make(token))
        ends_ms = self.now + patience_ms
        while (found := answer(self.effects[number], token)) is None:
            assert self.now < ends_ms, "no answer"
            self.run(50, steps_max=2_000_000)
        return found

    def dht(self, number: int) -> Kademlia:
        return machine(self.peers[number])

    def holders(self, key: bytes) -> list[int]:
        return [n for n, peer in self.peers.items() if machine(peer).values.get(key) is not None]

    def closest(self, target: int, count: int = 20) -> list[int]:
        return by_distance(target, list(self.peers))[:count]


def peer_id(number: int) -> PeerId:
    return contact(number).peer


def largest(values: Sequence[bytes]) -> int:
    """Of values that are numbers the largest stands."""
    return values.index(max(values, key=int))
