"""Topic records in the DHT: refused in each wrong way, and the latest stands everywhere."""

from __future__ import annotations

from kademlia_kit import Network, peer_id
from protocol_kit import contact
from tests.history_kit import ANNA, BEN, CAROL, NOW_MS, SPORTS, Key, topic

from weft.documents import record
from weft.protocol import seam
from weft.protocol.config import Config
from weft.protocol.context import Context
from weft.protocol.kademlia.kinds import KINDS
from weft.protocol.kademlia.records import Values
from weft.rules.prefix import TOPIC_RECORD


def sealed(sequence: int, key: Key = ANNA, now_ms: int = NOW_MS) -> record.Record:
    return record.seal(
        key.sign,
        signer=key.peer,
        holders=[ANNA.peer, BEN.peer],
        topic=SPORTS,
        value=topic().cid,
        sequence=sequence,
        now_ms=now_ms,
    )


KEY = bytes((TOPIC_RECORD,)) + sealed(1).name
LIFE = record.LIFE_MS


def test_a_holder_takes_the_latest_valid_record() -> None:
    ctx = Context(contact(1), 7, Config())
    ctx.wall_offset_ms = NOW_MS
    held = Values(ctx, 0, KINDS)

    def store(encoded: bytes, key: bytes = KEY) -> str:
        return held.store(peer_id(2), key, encoded, LIFE)

    assert store(sealed(2).encoded) == "stored"
    assert store(sealed(1).encoded) == "older"
    assert store(sealed(3, BEN).encoded) == "stored"  # another of the topic's holders
    assert store(sealed(4, CAROL).encoded) == "invalid"  # stands under another name
    forged = bytearray(sealed(4).encoded)
    forged[-10] ^= 1
    assert store(bytes(forged)) == "invalid"
    assert store(sealed(4, now_ms=NOW_MS - LIFE).encoded) == "invalid"  # expired
    assert store(sealed(4).encoded, bytes((TOPIC_RECORD,)) + bytes(32)) == "invalid"
    assert store(b"nonsense") == "invalid"
    assert held.get(KEY) == sealed(3, BEN).encoded
    ctx.now = LIFE  # the one held has expired, so that any valid one may stand
    assert store(sealed(1, now_ms=NOW_MS + LIFE).encoded) == "stored"


def test_the_latest_record_reaches_those_who_missed_it() -> None:
    network = Network(12)
    old, new = (sealed(sequence, now_ms=0).encoded for sequence in (1, 2))
    network.ask(2, lambda token: seam.DhtPut(token, KEY, old))
    for number in list(network.peers)[:9]:
        assert network.dht(number).values.store(peer_id(2), KEY, new, LIFE) == "stored"
    found = network.ask(12, lambda token: seam.DhtGet(token, KEY, 11))
    assert found.value == new
    network.run(1_000)
    behind = [n for n in network.peers if network.dht(n).values.get(KEY) != new]
    assert behind in ([], [12])  # all who were asked; the asker's own copy is its own matter
