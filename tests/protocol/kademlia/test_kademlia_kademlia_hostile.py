"""Whatever others say: nothing breaks, nothing grows, lookups end."""

from __future__ import annotations

from collections import Counter
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from test_protocol_peer_bounds import sizes

from arbitrary import KEYS, LOCATIONS, PEERS, pooled_message, random_message
from kademlia_kit import (
    Network,
    answer,
    asked,
    by_distance,
    dht,
    machine,
    reply,
    request,
    rig,
    told,
)
from protocol_kit import Rig, contact
from weft.ids import Contact
from weft.protocol import seam
from weft.protocol.config import Config, Defence
from weft.protocol.kademlia import rpc
from weft.protocol.wire import Message
from weft.rules.prefix import as_bytes, block_key, common_prefix, location_of

TINY = dht(
    k=3,
    alpha=2,
    spare=2,
    values_max=4,
    values_bytes_max=64,
    value_bytes_max=16,
    values_per_sender_max=3,
    providers_max=6,
    providers_per_key_max=2,
    providers_per_sender_max=3,
    provided_max=3,
    lookups_max=4,
    waiting_max=4,
    requests_max=12,
    republish_ms=20_000,
    provide_again_ms=20_000,
    refresh_ms=30_000,
)
KINDS = (
    rpc.FindRequest,
    rpc.FindReply,
    rpc.StoreValue,
    rpc.AddProvider,
    rpc.StoreReply,
    rpc.Probe,
    rpc.ProbeReply,
)


def ready() -> Rig:
    rig = Rig(1, Config(dht=TINY))
    rig.meet(2, 3)
    rig.do(seam.DhtPut(1, KEYS[1], b"1"))
    rig.do(seam.DhtProvide(2, KEYS[0]))
    return rig


def bounded(rig: Rig) -> None:
    """Every table of the DHT is within its bound."""
    one = machine(rig)
    assert len(one.values) <= TINY.values_max and one.values.bytes <= TINY.values_bytes_max
    assert len(one.providers) <= TINY.providers_max
    assert one.operations.provided <= TINY.provided_max
    table = one.home.table
    buckets = Counter(common_prefix(table.own, entry.key) for entry in table)
    assert all(count <= TINY.k for count in buckets.values())
    assert sizes(table)["_Bucket.spare"] <= TINY.spare * len(buckets)
    assert one.searches.running <= TINY.lookups_max


commands = st.one_of(
    st.builds(seam.DhtPut, st.integers(1, 9), st.sampled_from(KEYS), st.sampled_from((b"", b"1"))),
    st.builds(seam.DhtGet, st.integers(1, 9), st.sampled_from(KEYS), st.integers(0, 3)),
    st.builds(seam.DhtProvide, st.integers(1, 9), st.sampled_from(KEYS), st.booleans()),
    st.builds(seam.DhtFindProviders, st.integers(1, 9), st.sampled_from(KEYS), st.integers(0, 4)),
    st.builds(
        seam.DhtFindPeer, st.integers(1, 9), st.sampled_from([p.peer for p in PEERS]), st.booleans()
    ),
    st.builds(seam.DhtClosest, st.integers(1, 9), st.sampled_from(LOCATIONS)),
)


@settings(max_examples=60)
@given(st.lists(st.one_of(commands, st.integers(0, 5_000)), max_size=30), st.integers(0, 999))
def test_no_conversation_hurts(script: list[seam.DhtCommand | int], seed: int) -> None:
    """Answers to what was asked, answers to nothing, requests and time, in any order."""
    rng = Random(seed)
    rig = ready()
    said: list[rpc.FindRequest] = []
    for step in script:
        effects = rig.wait(step) if isinstance(step, int) else rig.do(step)
        said = (said + [message for _, message in asked(effects)])[-20:]
        if said and rng.random() < 0.7:
            message = rng.choice(said)
            names = [rng.randrange(1, 60) for _ in range(rng.randrange(5))]
            lie = reply(message, *names, found=rng.random() < 0.3, value=rng.randbytes(2))
            effects = rig.do(seam.Received(rng.choice(PEERS), lie))
            said += [message for _, message in asked(effects)]
        rig.do(seam.Received(rng.choice(PEERS), pooled_message(rng)))
        bounded(rig)
    rig.wait(300_000)
    bounded(rig)
    assert machine(rig).searches.running <= TINY.background_max  # whatever users began has ended


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_no_flood_makes_a_peer_grow(kind: type) -> None:
    rig = ready()
    rng = Random(kind.__name__)
    for number in range(1_500):
        sender = 2 if rng.random() < 0.3 else rng.randrange(2, 1 << 40)
        message = random_message(kind, rng, "")
        if kind is rpc.StoreValue:  # valid ones, which would be kept
            value = rng.randbytes(3)
            message = rpc.StoreValue(1, block_key(value), value, 1 << 40)
        elif kind is rpc.AddProvider:
            message = rpc.AddProvider(1, b"key %d" % rng.randrange(1_000))
        elif kind is rpc.FindRequest:
            message = rpc.FindRequest(1, 0, "", "", rng.randbytes(32))  # type: ignore[arg-type]
        rig.hear(sender, message)
        if number % 10 == 0:
            rig.wait(1)
            bounded(rig)
    too_large = {where: size for where, size in sizes(rig.peer).items() if size > 150}
    assert too_large == {}


def test_a_flood_of_strangers_does_not_push_the_known_out() -> None:
    rig = ready()
    for number in range(4, 40):
        rig.hear(number, rpc.FindRequest(1, 0, "", "", bytes(32)))  # type: ignore[arg-type]
    known = {entry.key for entry in machine(rig).home.table}
    effects: list[seam.Effect] = []
    for number in range(1_000, 3_000):
        effects += rig.hear(number, rpc.FindRequest(1, 0, "", "", bytes(32)))  # type: ignore[arg-type]
        rig.wait(1)
    assert known <= {entry.key for entry in machine(rig).home.table}
    probes = [e for e in effects if isinstance(e, seam.Send) and isinstance(e.message, rpc.Probe)]
    assert probes == []


def test_a_probed_peer_that_is_alive_stays_and_a_dead_one_goes() -> None:
    rig = Rig(1, Config(dht=dht(k=1, alpha=1, fresh_ms=1_000, failures_max=2)))
    deep = [
        n
        for n in range(2, 200)
        if location_of(contact(n).peer) ^ location_of(rig.me.peer) > 1 << 255
    ]
    first, second = deep[:2]
    ask = rpc.FindRequest(1, 0, "", "", bytes(32))  # type: ignore[arg-type]
    rig.hear(first, ask)
    rig.wait(2_000)

    def probe(effects: list[seam.Effect]) -> rpc.Probe | None:
        found = [e.message for e in effects if isinstance(e, seam.Send)]
        return next((m for m in found if isinstance(m, rpc.Probe)), None)

    sent = probe(rig.hear(second, ask))
    assert sent is not None
    rig.hear(first, rpc.ProbeReply(sent.request, True))
    assert [entry.contact for entry in machine(rig).home.table] == [contact(first)]
    rig.wait(2_000)
    assert probe(rig.hear(second, ask)) is not None
    rig.wait(10_000)  # no answer, twice
    assert [entry.contact for entry in machine(rig).home.table] == [contact(second)]


@pytest.mark.parametrize("liars", [1, 6])
def test_lookups_work_with_liars_among_the_peers(liars: int) -> None:
    """They name peers that do not exist, right beside whatever is looked for, and hold nothing."""
    network = Network(40, dht(k=8))
    value = b"value"
    key = block_key(value)
    network.ask(2, lambda token: seam.DhtPut(token, key, value))
    lying = network.closest(location_of(key), 40)[1 : liars + 1]
    bogus = list(range(10_000, 14_000))
    near = sorted(bogus, key=lambda n: location_of(contact(n).peer) ^ location_of(key))[:8]

    def lie(sender: int, message: Message) -> Message:
        if sender in lying and isinstance(message, rpc.FindReply):
            return rpc.FindReply(message.request, True, told(*near))
        return message

    network.alter = lie
    honest = [number for number in network.peers if number not in lying]
    for asker in honest[:5]:
        found = network.ask(asker, lambda token: seam.DhtGet(token, key), 120_000)
        assert found.value == value
    target = location_of(key)
    done = network.ask(honest[-1], lambda token: seam.DhtClosest(token, as_bytes(target)), 120_000)
    expected = network.closest(target, 8)
    assert [one.peer for one in done.contacts] == [contact(n).peer for n in expected]


def test_a_value_is_found_behind_liars_that_lie_closest_to_its_key() -> None:
    """As ids that were ground do; they answer, name each other, and have nothing."""
    value = b"value"
    key = block_key(value)
    one = rig(dht(k=2, alpha=2), *range(2, 12))
    *liars, third, holder = by_distance(location_of(key), [*range(2, 12)])[:4]
    answered: list[int] = []
    effects = one.do(seam.DhtGet(5, key))
    while asks := asked(effects):
        effects = []
        for to, question in asks:
            answered.append(to)
            found = {"found": True, "value": value} if to == holder else {}
            named = liars if to in liars else [third, holder]
            effects += one.hear(to, reply(question, *named, **found))
    got = answer(effects, 5)
    assert got is not None and got.value == value
    assert set(answered) <= {*liars, third, holder}


def test_an_answer_comes_once_even_if_it_is_said_twice() -> None:
    rig = Rig(1, Config(dht=dht(k=2, alpha=1)))
    rig.meet(2)
    effects = rig.do(seam.DhtClosest(5, LOCATIONS[2]))
    [(number, message)] = asked(effects)
    assert answer(rig.hear(number, reply(message)), 5) is not None
    assert rig.hear(number, reply(message, 3, 4)) == []


def test_a_bucket_holds_a_few_peers_of_one_address() -> None:
    """Over many addresses of this machine, which count like all others here."""
    defence = Defence(address_peers=2, local_addresses=True)
    rig = Rig(1, Config(dht=dht(k=8, spare=4), defence=defence))
    for number in range(2, 400):
        host = number % 10 + 1 if number % 3 == 0 else 200  # most at one address
        sender = Contact(contact(number).peer, f"/ip4/127.0.0.{host}/tcp/{number}")
        rig.do(seam.Received(sender, request(0)))
    table = machine(rig).home.table
    crowds = Counter(
        (common_prefix(table.own, entry.key), entry.contact.address.split("/")[2])
        for entry in table
    )
    assert max(crowds.values()) == 2
    assert len({address for _, address in crowds}) == 11
