"""What a peer holds for others: valid, bounded, not for ever; of topic records the latest."""

from __future__ import annotations

import pytest

from kademlia_kit import Network, dht, largest, peer_id
from protocol_kit import contact
from signed_kit import ANNA, BEN, CAROL, NOW_MS, SPORTS, Key, topic
from weft.documents import record
from weft.documents.record import KINDS, Kind
from weft.documents.refusal import Reason
from weft.ids import Contact
from weft.protocol import seam
from weft.protocol.config import Config, KademliaSettings
from weft.protocol.context import Context
from weft.protocol.kademlia.records import Providers, Values
from weft.rules.prefix import block_key, location_of, record_key

NUMBERED = 9
HOUR = 3_600_000


def _valid(key: bytes, value: bytes, wall_ms: int) -> Reason | None:
    return None if value.isdigit() and int(value) > wall_ms else Reason.EXPIRED


@pytest.fixture(autouse=True)
def _numbered(monkeypatch: pytest.MonkeyPatch) -> None:
    """A kind of value of which the larger number stands, valid until the wall clock passes it."""
    monkeypatch.setitem(KINDS, NUMBERED, Kind(_valid, largest))


KEY = bytes((NUMBERED,)) + b"name"


def context(settings: KademliaSettings) -> Context:
    return Context(contact(1), 7, Config(dht=settings))


def values(settings: KademliaSettings, own: int = 0) -> tuple[Context, Values]:
    ctx = context(settings)
    return ctx, Values(ctx, own)


def put(held: Values, value: bytes, sender: int = 2, life_ms: int = 1_000) -> str:
    return held.store(peer_id(sender), block_key(value), value, life_ms)


def test_a_block_must_match_its_key() -> None:
    _, held = values(dht())
    assert put(held, b"x") == "stored"
    assert put(held, b"x") == "held"
    assert held.get(block_key(b"x")) == b"x"
    assert held.store(peer_id(2), block_key(b"y"), b"x", 1_000) == "invalid"
    assert held.store(peer_id(2), b"\x77key", b"x", 1_000) == "invalid"
    assert held.store(peer_id(2), b"", b"x", 1_000) == "invalid"
    assert len(held) == 1 and held.bytes == 1


def test_the_newer_value_stands() -> None:
    ctx, held = values(dht())
    assert held.store(peer_id(2), KEY, b"5", 1_000) == "stored"
    assert held.store(peer_id(3), KEY, b"4", 1_000) == "older"
    assert held.store(peer_id(3), KEY, b"nonsense", 1_000) == "invalid"
    assert held.store(peer_id(3), KEY, b"700", 1_000) == "stored"
    assert held.get(KEY) == b"700"
    ctx.wall_offset_ms = 800  # by the wall clock it is no longer valid, so an older one may stand
    assert held.store(peer_id(3), KEY, b"900", 1_000) == "stored"
    assert held.bytes == 3


def test_values_end_unless_they_are_stored_again() -> None:
    ctx, held = values(dht(value_life_ms=5_000))
    put(held, b"x", life_ms=1_000)
    put(held, b"long", life_ms=1 << 60)
    ctx.now = 900
    put(held, b"x", life_ms=1_000)
    ctx.now = 1_500
    assert held.get(block_key(b"x")) == b"x"
    assert held.life_ms(block_key(b"x")) == 400
    ctx.now = 1_900
    assert held.get(block_key(b"x")) is None
    held.expire()
    assert len(held) == 1 and held.bytes == 4
    ctx.now = 5_000  # nobody can make it last longer than the holder allows
    held.expire()
    assert len(held) == held.bytes == 0


def test_no_life_no_value() -> None:
    _, held = values(dht())
    assert put(held, b"x", life_ms=0) == "invalid"


def test_bounds_hold_and_the_closest_stay() -> None:
    settings = dht(values_max=10, values_bytes_max=100, value_bytes_max=50)
    _, held = values(settings)
    assert put(held, bytes(51)) == "oversized"
    contents = [b"%03d" % number for number in range(60)]
    for number, value in enumerate(contents):
        put(held, value, sender=number)
        assert len(held) <= 10 and held.bytes <= 100
    wanted = sorted(contents, key=lambda value: location_of(block_key(value)))[:10]
    assert [value for value in contents if held.get(block_key(value))] == sorted(wanted)
    big = [bytes([number]) * 50 for number in range(20)]
    for number, value in enumerate(big):
        put(held, value, sender=number)
        assert held.bytes <= 100


def test_one_sender_cannot_fill_it() -> None:
    _, held = values(dht(values_max=10, values_per_sender_max=3))
    assert [put(held, b"%d" % n) for n in range(5)] == ["stored"] * 3 + ["full"] * 2
    assert put(held, b"other", sender=3) == "stored"
    own = [put(held, b"own %d" % n, sender=1) for n in range(5)]
    assert own == ["stored"] * 5  # what the own user puts is not a flood


def test_republishing_is_due_once_an_hour_and_put_off_by_others() -> None:
    ctx, held = values(dht())
    for number in range(5):
        put(held, b"%d" % number, life_ms=24 * HOUR)
    assert held.take_due(9) == []
    ctx.now = HOUR // 2
    put(held, b"0", life_ms=24 * HOUR)
    ctx.now = 5 * HOUR // 4
    assert len(held.take_due(3)) == 3
    assert len(held.take_due(9)) == 1  # 0 was stored again half an hour ago
    assert held.take_due(9) == []
    ctx.now = 9 * HOUR // 4
    assert len(held.take_due(9)) == 5


def add(held: Providers, provider: int, key: bytes = b"key") -> bool:
    return held.add(contact(provider), key)


def providers(settings: KademliaSettings) -> tuple[Context, Providers]:
    ctx = context(settings)
    return ctx, Providers(ctx)


def test_providers_end_unless_they_say_it_again() -> None:
    ctx, held = providers(dht(provider_life_ms=1_000))
    add(held, 2), add(held, 3)
    ctx.now = 600
    add(held, 2)
    ctx.now = 1_100
    assert held.get(b"key") == [contact(2)]
    held.expire()
    assert len(held) == 1
    ctx.now = 1_600
    held.expire()
    assert len(held) == 0 and held.get(b"key") == []


def test_a_provider_that_moved_is_known_by_its_new_address() -> None:
    _, held = providers(dht())
    moved = Contact(contact(2).peer, "/ip4/127.0.0.1/tcp/9")
    add(held, 2)
    held.add(moved, b"key")
    assert held.get(b"key") == [moved] and len(held) == 1
    assert not held.add(Contact(contact(3).peer, ""), b"key")
    assert not add(held, 3, b"")


def test_provider_records_are_bounded() -> None:
    settings = dht(providers_max=20, providers_per_key_max=5, providers_per_sender_max=4)
    ctx, held = providers(settings)
    for number in range(2, 40):
        add(held, number)
    assert len(held.get(b"key")) == len(held) == 5
    for number in range(6):
        assert add(held, 99, b"k%d" % number)
    assert len(held) == 9
    for number in range(200):
        add(held, 100 + number, b"key %d" % (number % 50))
        assert len(held) <= 20
    ctx.now = settings.provider_life_ms  # all have ended
    held.expire()
    assert len(held) == 0


def test_a_sender_that_provides_without_end_is_held_to_the_latest() -> None:
    settings = dht(providers_max=1_000, providers_per_sender_max=4)
    ctx, held = providers(settings)
    add(held, 2, b"of another")
    for number in range(10):
        assert add(held, 99, b"k%d" % number)
        add(held, 99, b"k0")  # renewed again and again
    found = [number for number in range(10) if held.get(b"k%d" % number)]
    assert found == [0, 7, 8, 9] and held.get(b"of another")
    assert ctx.counters["dht_providers_evicted"] == 6


def test_no_sender_crowds_out_what_others_provide() -> None:
    settings = dht(providers_max=20, providers_per_sender_max=18)
    _, held = providers(settings)
    for number in range(2, 6):
        add(held, number, b"of %d" % number)
    for number in range(100):
        add(held, 99, b"k%d" % number)
        add(held, 98, b"l%d" % number)
    assert len(held) == 20
    assert all(held.get(b"of %d" % number) for number in range(2, 6))
    assert held.get(b"k99") and held.get(b"l99")


def test_senders_that_fill_the_table_together_make_room_for_each_other() -> None:
    """What honest peers provide is older, and less of each than of any of those."""
    _, held = providers(dht(providers_max=200, providers_per_sender_max=30))
    for number in range(2, 12):
        add(held, number, b"of %d" % number)
    for number in range(90, 100):
        for key in range(40):
            add(held, number, b"%d/%d" % (number, key))
    assert len(held) == 200
    assert all(held.get(b"of %d" % number) for number in range(2, 12))


# --- topic records --------------------------------------------------------------------------------


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


TOPIC_KEY = record_key(sealed(1).name)
LIFE_MS = record.LIFE_MS


def test_a_holder_takes_the_latest_valid_record() -> None:
    ctx = Context(contact(1), 7, Config())
    ctx.wall_offset_ms = NOW_MS
    held = Values(ctx, 0)

    def store(encoded: bytes, key: bytes = TOPIC_KEY) -> str:
        return held.store(peer_id(2), key, encoded, LIFE_MS)

    assert store(sealed(2).encoded) == "stored"
    assert store(sealed(1).encoded) == "older"
    assert store(sealed(3, BEN).encoded) == "stored"  # another of the topic's holders
    assert store(sealed(4, CAROL).encoded) == "invalid"  # stands under another name
    forged = bytearray(sealed(4).encoded)
    forged[-10] ^= 1
    assert store(bytes(forged)) == "invalid"
    assert store(sealed(4, now_ms=NOW_MS - LIFE_MS).encoded) == "invalid"  # expired
    assert store(sealed(4).encoded, record_key(bytes(32))) == "invalid"
    assert store(b"nonsense") == "invalid"
    assert held.get(TOPIC_KEY) == sealed(3, BEN).encoded
    ctx.now = LIFE_MS  # the one held has expired, so that any valid one may stand
    assert store(sealed(1, now_ms=NOW_MS + LIFE_MS).encoded) == "stored"


def test_the_latest_record_reaches_holders_that_missed_it() -> None:
    network = Network(12)
    old, new = (sealed(sequence, now_ms=0).encoded for sequence in (1, 2))
    network.ask(2, lambda token: seam.DhtPut(token, TOPIC_KEY, old))
    for number in list(network.peers)[:9]:
        assert network.dht(number).values.store(peer_id(2), TOPIC_KEY, new, LIFE_MS) == "stored"
    found = network.ask(12, lambda token: seam.DhtGet(token, TOPIC_KEY, 11))
    assert found.value == new
    network.run(1_000)
    behind = [n for n in network.peers if network.dht(n).values.get(TOPIC_KEY) != new]
    assert behind in ([], [12])  # all that were asked; the asker's own copy is its own matter
