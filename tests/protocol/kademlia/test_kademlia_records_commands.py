"""What users ask for, among peers that work."""

from __future__ import annotations

import pytest

from kademlia_kit import (
    ON,
    Network,
    answer,
    asked,
    by_distance,
    dht,
    largest,
    machine,
    numbers,
    peer_id,
    reply,
    rig,
)
from protocol_kit import Rig, contact, sent
from weft.documents.record import KINDS, Kind
from weft.documents.refusal import Reason
from weft.protocol import seam
from weft.protocol.kademlia.rpc import AddProvider, StoreReply, StoreValue
from weft.protocol.peer import Peer
from weft.rules.prefix import as_bytes, block_key, location_of

NUMBERED = 9
KEY = bytes((NUMBERED,)) + b"name"


@pytest.fixture(scope="module")
def network() -> Network:
    return Network(40)


def test_a_value_is_held_by_the_closest_and_found_from_anywhere(network: Network) -> None:
    value = b"a block"
    key = block_key(value)
    put = network.ask(3, lambda token: seam.DhtPut(token, key, value))
    assert (put.outcome, put.count) == ("stored", 20)
    assert sorted(network.holders(key)) == sorted(network.closest(location_of(key)))
    for asker in (1, 9, 33):
        assert network.ask(asker, lambda token: seam.DhtGet(token, key)).value == value


def test_what_is_not_there_is_not_found(network: Network) -> None:
    missing = network.ask(3, lambda token: seam.DhtGet(token, block_key(b"nobody has this")))
    assert (missing.outcome, missing.value) == ("not_found", None)
    none = network.ask(3, lambda token: seam.DhtFindProviders(token, b"nothing", 3))
    assert (none.outcome, none.contacts) == ("not_found", ())


def test_the_closest_peers_are_the_closest(network: Network) -> None:
    for asker in range(1, 6):
        target = location_of(b"target %d" % asker)
        command = network.ask(asker, lambda token, t=target: seam.DhtClosest(token, as_bytes(t)))
        assert numbers(command.contacts) == network.closest(target)


def test_providers_are_found(network: Network) -> None:
    key = b"something large"
    for provider in (4, 5, 6):
        told = network.ask(provider, lambda token: seam.DhtProvide(token, key))
        assert (told.outcome, told.count) == ("stored", 20)
    found = network.ask(30, lambda token: seam.DhtFindProviders(token, key, 9))
    assert sorted(numbers(found.contacts)) == [4, 5, 6]
    few = network.ask(31, lambda token: seam.DhtFindProviders(token, key, 2))
    assert len(few.contacts) == 2


def test_providers_known_to_be_up_come_first_and_those_that_failed_last() -> None:
    one = rig(dht(k=4, alpha=2), 2, 3)
    first = dict(asked(one.do(seam.DhtFindProviders(7, b"key", 9))))
    one.lose(3)
    told = [contact(number) for number in (3, 50, 2)]
    effects = one.hear(2, reply(first[2], providers=told))
    for number, message in asked(effects):  # the closest is asked again after the failure
        effects += one.hear(number, reply(message, providers=told))
    done = answer(effects, 7)
    assert done is not None and numbers(done.contacts) == [2, 50, 3]


def test_of_providers_that_nothing_is_known_of_each_search_names_others() -> None:
    one = rig(dht(k=2, alpha=1), 2)
    key, unknown = b"key", list(range(50, 80))
    names: set[int] = set()
    for token in range(10, 20):
        [(number, message)] = asked(one.do(seam.DhtFindProviders(token, key, 3)))
        told = reply(message, providers=[contact(n) for n in unknown])
        done = answer(one.hear(number, told), token)
        assert done is not None and len(done.contacts) == 3
        names.update(numbers(done.contacts))
    assert len(names) > 10


def test_a_peer_is_found_by_its_id(network: Network) -> None:
    for number in (2, 17, 40):
        found = network.ask(5, lambda token, n=number: seam.DhtFindPeer(token, peer_id(n)))
        assert found.contact == contact(number)
    missing = network.ask(5, lambda token: seam.DhtFindPeer(token, peer_id(999)))
    assert (missing.outcome, missing.contact) == ("not_found", None)
    assert network.ask(5, lambda token: seam.DhtFindPeer(token, peer_id(5))).contact == contact(5)


def test_find_peer_local_asks_nobody() -> None:
    one = rig(ON, 2, 3)
    for number, outcome in ((2, "found"), (9, "not_found")):
        effects = one.do(seam.DhtFindPeer(7, peer_id(number), True))
        done = answer(effects, 7)
        assert done is not None and done.outcome == outcome
        assert asked(effects) == []


def test_what_cannot_be_stored_is_refused() -> None:
    one = rig(dht(value_bytes_max=10, provided_max=1), 2)
    wrong: list[seam.DhtCommand] = [
        seam.DhtPut(7, block_key(b"x"), b"y"),
        seam.DhtPut(7, b"\x77", b"y"),
        seam.DhtPut(7, b"", b""),
        seam.DhtPut(7, block_key(bytes(11)), bytes(11)),
        seam.DhtGet(7, b"\x77 of no known kind"),
        seam.DhtProvide(7, b""),
        seam.DhtProvide(7, bytes(66)),
        seam.DhtFindProviders(7, b"", 1),
        seam.DhtClosest(7, b"too short"),
    ]
    for command in wrong:
        done = answer(one.do(command), 7)
        assert done is not None and done.outcome == "refused", command
    one.do(seam.DhtProvide(8, b"one"))
    done = answer(one.do(seam.DhtProvide(9, b"two")), 9)
    assert done is not None and done.outcome == "refused"


def test_alone_a_peer_holds_its_own() -> None:
    one = rig(ON)
    done = answer(one.do(seam.DhtPut(7, block_key(b"x"), b"x")), 7)
    assert done is not None and (done.outcome, done.count) == ("stored", 1)
    found = answer(one.do(seam.DhtGet(8, block_key(b"x"))), 8)
    assert found is not None and found.value == b"x"


# --- values that change ---------------------------------------------------------------------------


def _valid(key: bytes, value: bytes, wall_ms: int) -> Reason | None:
    return None if value.isdigit() else Reason.BAD_SHAPE


@pytest.fixture
def numbered(monkeypatch: pytest.MonkeyPatch) -> None:
    """A kind of value of which the larger number stands."""
    monkeypatch.setitem(KINDS, NUMBERED, Kind(_valid, largest))


@pytest.mark.usefixtures("numbered")
def test_the_newest_of_a_quorum_wins_and_others_are_given_it() -> None:
    one = rig(dht(quorum=3, k=8, alpha=8), *range(2, 8))
    effects = one.do(seam.DhtGet(7, KEY))
    said = {2: b"4", 3: b"7", 4: b"lies"}
    waiting = dict(asked(effects))
    for number in (2, 3, 4, 5):
        message = waiting[number]
        value = said.get(number)
        more = reply(message, found=value is not None, value=value or b"")
        assert answer(one.hear(number, more), 7) is None
    effects = one.hear(6, reply(waiting[6], found=True, value=b"5"))
    done = answer(effects, 7)
    assert done is not None and done.value == b"7"
    given = {number: message.value for number, message in sent(effects, StoreValue)}
    assert given == {2: b"7", 6: b"7"}
    assert one.peer.counters["dht_values_refused"] == 1


@pytest.mark.usefixtures("numbered")
def test_fewer_than_a_quorum_will_do_when_all_have_answered() -> None:
    network = Network(12)
    for number in list(network.peers)[:2]:  # all but two have none
        assert network.dht(number).values.store(peer_id(2), KEY, b"3", 60_000) == "stored"
    found = network.ask(5, lambda token: seam.DhtGet(token, KEY, 9))
    assert found.value == b"3"


# --- looking after records ------------------------------------------------------------------------

QUICK = dht(republish_ms=20_000, value_life_ms=200_000, provide_again_ms=30_000)


def test_holders_republish_and_newcomers_take_over() -> None:
    network = Network(30, QUICK)
    key = block_key(b"value")
    network.ask(2, lambda token: seam.DhtPut(token, key, b"value"))
    for number in network.closest(location_of(key))[:10]:
        network.kill(number)
    for number in range(100, 112):
        network.add(number)
    before = len([entry for entry in network.log if isinstance(entry[3], StoreValue)])
    network.run(100_000, steps_max=2_000_000)
    closest = network.closest(location_of(key))
    held = set(network.holders(key))
    assert len(held & set(closest)) >= 18
    stores = len([entry for entry in network.log if isinstance(entry[3], StoreValue)]) - before
    rounds = 100_000 // 20_000
    assert stores <= 3 * rounds * 20  # one or a few holders per round, not all twenty


def test_values_end_with_their_life() -> None:
    network = Network(12, QUICK)
    key = block_key(b"value")
    network.ask(2, lambda token: seam.DhtPut(token, key, b"value", 60_000))
    assert len(network.holders(key)) == 12
    network.run(70_000, steps_max=2_000_000)
    assert network.holders(key) == []  # though holders republished it meanwhile


def test_providers_say_it_again_until_told_to_stop() -> None:
    one = rig(QUICK, 2)
    key = b"key"
    waiting = asked(one.do(seam.DhtProvide(7, key)))
    effects = one.hear(2, reply(waiting[0][1]))
    [(_, told)] = sent(effects, AddProvider)
    done = answer(one.hear(2, StoreReply(told.request, True)), 7)
    assert done is not None and done.count == 2  # itself, too
    again: list[seam.Effect] = []
    for _ in range(60):
        again += one.wait(1_000)
        for number, message in asked(again):
            again += one.hear(number, reply(message))
        if sent(again, AddProvider):
            break
    [(_, renewed), *_] = sent(again, AddProvider)
    one.hear(2, StoreReply(renewed.request, True))
    stopped = answer(one.do(seam.DhtProvide(9, key, True)), 9)
    assert stopped is not None and stopped.outcome == "left"
    later: list[seam.Effect] = []
    for _ in range(60):
        later += one.wait(1_000)
        for number, message in asked(later):
            later += one.hear(number, reply(message))
    assert not sent(later, AddProvider)


def tell_provider(one: Rig, effects: list[seam.Effect], accepted: bool) -> list[seam.Effect]:
    """Answer lookups and requests to hold a provider record as peer 2 does."""
    for number, message in asked(effects):
        effects = effects + one.hear(number, reply(message))
    for number, message in sent(effects, AddProvider):
        effects = effects + one.hear(number, StoreReply(message.request, accepted))
    return effects


def test_layers_provide_on_and_on_and_the_latest_are_renewed() -> None:
    """A peer that publishes for long never stops to provide what it publishes."""
    one = rig(dht(provided_max=3, provide_again_ms=30_000, providers_per_sender_max=100), 2)
    for number in range(8):
        effects = tell_provider(one, one.do(seam.DhtProvide(-9 - number, b"k%d" % number)), True)
        done = answer(effects, -9 - number)
        assert done is not None and done.outcome == "stored"
    assert machine(one).operations.provided == 3
    assert one.peer.counters["dht_provided_dropped"] == 5
    renewed = set()
    for _ in range(60):
        effects = tell_provider(one, one.wait(1_000), True)
        renewed |= {message.key for _, message in sent(effects, AddProvider)}
    assert renewed == {b"k5", b"k6", b"k7"}
    # A user is told that there is no room, rather than find out later that it was taken away.
    for token, outcome in ((50, "stored"), (51, "stored"), (52, "stored"), (53, "refused")):
        done = answer(
            tell_provider(one, one.do(seam.DhtProvide(token, b"u%d" % token)), True), token
        )
        assert done is not None and done.outcome == outcome


def test_what_no_peer_took_is_told_again_soon() -> None:
    one = rig(dht(k=1, alpha=1, provide_retry_ms=20_000), 2)
    key = next(
        b"key %d" % n for n in range(100) if by_distance(location_of(b"key %d" % n), [1, 2])[0] == 2
    )
    done = answer(tell_provider(one, one.do(seam.DhtProvide(7, key)), False), 7)
    assert done is not None and done.outcome == "failed"
    told: list[seam.Effect] = []
    for _ in range(60):
        told += tell_provider(one, one.wait(1_000), True)
    assert len(sent(told, AddProvider)) == 1  # and then it rests: a peer has taken it


def test_after_a_sleep_it_is_told_again_at_once() -> None:
    one = rig(dht(provide_again_ms=3_600_000), 2)
    one.do(seam.ClockMoved(1_000_000_000_000))
    tell_provider(one, one.do(seam.DhtProvide(7, b"key")), True)

    def told_within(ms: int) -> int:
        effects: list[seam.Effect] = []
        for _ in range(ms // 1_000):
            effects += tell_provider(one, one.wait(1_000), True)
        return len(sent(effects, AddProvider))

    assert told_within(120_000) == 0
    one.do(seam.ClockMoved(1_000_000_000_000 + 26 * 3_600_000))
    assert told_within(120_000) == 1


def test_two_networks_that_meet_become_one() -> None:
    """Their general overlays merge by one acquaintance; the tables follow."""
    settings = dht(k=4, refresh_ms=20_000)
    network = Network(16, settings)
    for number in range(21, 37):
        network.peers[number] = Peer(contact(number), 7, network.config)
        network.effects[number] = []
        known = (contact(21),) if number > 21 else ()
        network.do(number, seam.Started(1, known))
    network.run(60_000, steps_max=2_000_000)
    target = as_bytes(location_of(b"target"))
    apart = network.ask(1, lambda token: seam.DhtClosest(token, target))
    assert max(numbers(apart.contacts)) <= 16
    network.do(1, seam.Join((contact(21),)))
    network.run(200_000, steps_max=2_000_000)
    for asker in (1, 9, 22, 36):
        found = network.ask(asker, lambda token: seam.DhtClosest(token, target))
        assert numbers(found.contacts) == network.closest(location_of(b"target"), 4)
