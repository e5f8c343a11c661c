"""One lookup, with neighbours whose answers the test writes."""

from __future__ import annotations

from kademlia_kit import (
    answer,
    asked,
    by_distance,
    dht,
    location,
    machine,
    numbers,
    reply,
    request,
    rig,
    told,
)
from protocol_kit import Rig, contact, number_of, timers
from weft.ids import Topic
from weft.protocol import seam
from weft.protocol.kademlia import rpc
from weft.protocol.kademlia.lookup import Outcome, Question, Search
from weft.protocol.kademlia.rpc import FindReply, FindRequest, Neighbour, ProbeReply
from weft.protocol.kademlia.table import Space
from weft.rules.prefix import as_bytes, location_of

TARGET = location_of(b"target")
CLOSEST = seam.DhtClosest(5, as_bytes(TARGET))


def begin(one: Rig) -> list[tuple[int, FindRequest]]:
    return asked(one.do(CLOSEST))


def test_alpha_at_once_the_closest_first() -> None:
    known = list(range(2, 12))
    one = rig(dht(), *known)
    first = begin(one)
    assert [number for number, _ in first] == by_distance(TARGET, known)[:3]
    number, message = first[0]
    assert message.target == as_bytes(TARGET)
    more = asked(one.hear(number, reply(message)))
    assert [number for number, _ in more] == by_distance(TARGET, known)[3:4]


def test_a_lookup_follows_closer_peers_and_ends_when_the_closest_have_answered() -> None:
    one = rig(dht(k=3, alpha=2), 2, 3)
    everybody = list(range(2, 40))
    near = by_distance(TARGET, everybody)
    waiting, seen = begin(one), []
    effects: list[seam.Effect] = []
    while waiting:
        number, message = waiting.pop(0)
        seen.append(number)
        effects = one.hear(number, reply(message, *near[:3]))
        waiting += asked(effects)
    done = answer(effects, 5)
    assert done is not None and done.outcome == "found"
    truth = by_distance(TARGET, [1, *everybody])[:3]  # the asker too, where it belongs
    assert numbers(done.contacts) == truth
    assert len(seen) == len(set(seen))


def test_slow_ones_are_asked_again_and_others_meanwhile() -> None:
    known = list(range(2, 12))
    one = rig(dht(), *known)
    first = begin(one)
    effects = one.wait(1_001)
    again = asked(effects)
    assert {number for number, _ in first} <= {number for number, _ in again}
    assert {number for number, _ in again} - {number for number, _ in first}


def test_the_places_of_slow_ones_are_filled_before_they_have_failed() -> None:
    one = rig(dht(k=3, alpha=3), 2, 3, 4)
    first = dict(begin(one))
    assert sorted(first) == [2, 3, 4]
    farther = [n for n in range(20, 80) if by_distance(TARGET, [2, 3, 4, n])[-1] == n][:2]
    assert asked(one.hear(2, reply(first[2], *farther))) == []
    asked_later = asked(one.wait(1_001))
    assert set(farther) <= {n for n, message in asked_later if message.target == as_bytes(TARGET)}


def test_a_peer_that_did_not_answer_last_is_not_told_to_others() -> None:
    one = rig(dht(), 2, 3)
    begin(one)
    one.lose(3)
    [effect] = [e for e in one.hear(9, request(7)) if isinstance(e, seam.Send)]
    assert isinstance(effect.message, FindReply)
    assert [number_of(n.contact) for n in effect.message.closer] == [2]


def test_a_peer_that_never_answers_is_not_found() -> None:
    one = rig(dht(k=2, alpha=2), 2, 3)
    first = dict(begin(one))
    one.hear(2, reply(first[2]))
    effects: list[seam.Effect] = []
    for _ in range(20):
        effects += one.wait(500)
        for number, message in asked(effects):
            if number == 2:
                effects += one.hear(2, reply(message))
    done = answer(effects, 5)
    assert done is not None
    assert sorted(numbers(done.contacts)) == [1, 2]


def test_a_peer_that_was_lost_a_moment_ago_is_asked_only_where_no_other_answers() -> None:
    """Where a network is cut, each lookup would else ask all peers beyond the cut."""
    one = rig(dht(k=3, alpha=3), 2, 3, 4)
    one.lose(3)
    first = dict(begin(one))
    assert sorted(first) == [2, 4]
    assert [number for number, _ in asked(one.lose(2))] == []
    assert {number for number, _ in asked(one.lose(4))} == {3}  # nobody else is left


def test_a_lost_peer_is_asked_again_once_it_has_spoken_or_after_a_while() -> None:
    one = rig(dht(k=3, alpha=3), 2, 3, 4)
    one.lose(2)
    one.lose(3)
    one.hear(3, request(1))
    assert {number for number, _ in begin(one)} == {3, 4}
    other = rig(dht(k=3, alpha=3), 2, 3, 4)
    other.lose(2)
    other.wait(10_000)
    assert 2 in {number for number, _ in begin(other)}


def test_a_peer_that_is_slow_in_one_role_is_not_asked_in_another() -> None:
    """A peer of the topic-aware DHT has as many locations as roles, and is silent in all."""
    roles = [Topic(name) for name in "abcdef"]
    space = Space(9, 256, lambda role, peer: location_of(role.encode() + peer))
    one = rig()
    found: list[Outcome] = []
    others = tuple(Neighbour(contact(2), role) for role in roles)
    question = Question(space, TARGET, sender_role=roles[0])
    machine(one).searches.start(Search(question, (), found.append, others=others, anew=True))
    first = asked(one.hear(7, request(1)))
    assert [number for number, _ in first] == [2, 2, 2]  # alpha at once
    later = []
    while not found:
        assert one.now < 10_000
        later += [message for _, message in asked(one.wait(500)) if message.space == space.number]
    assert {message.role for message in later} == {message.role for _, message in first}


def test_a_peer_is_asked_in_its_other_roles_once_it_has_answered() -> None:
    roles = [Topic(name) for name in "abcdef"]
    space = Space(9, 256, lambda role, peer: location_of(role.encode() + peer))
    one = rig()
    others = tuple(Neighbour(contact(2), role) for role in roles)
    question = Question(space, TARGET, sender_role=roles[0])
    machine(one).searches.start(
        Search(question, (), lambda outcome: None, others=others, anew=True)
    )
    first = asked(one.hear(7, request(1)))
    one.wait(1_001)
    later = asked(one.hear(2, reply(first[0][1])))
    assert {message.role for _, message in later} == {*roles} - {m.role for _, m in first}


def test_requests_have_one_timer_in_common() -> None:
    """Most answers come at once: a timer for each would fire for nothing."""
    one = rig(dht(), *range(2, 12))
    effects = one.do(CLOSEST)
    for number, message in asked(effects):
        effects += one.hear(number, reply(message))
    assert len(asked(effects)) > 3
    assert len(timers(effects, rpc.TIMER)) == 1


def test_a_lost_peer_is_not_waited_for() -> None:
    one = rig(dht(k=2, alpha=2), 2, 3)
    first = dict(begin(one))
    effects = one.lose(3)
    effects += one.hear(2, reply(first[2]))
    for number, message in asked(effects):  # the closest is asked for more after the failure
        effects += one.hear(number, reply(message))
    done = answer(effects, 5)
    assert done is not None and done.outcome == "found"
    assert numbers(done.contacts) == by_distance(TARGET, [1, 2])


def test_the_live_beyond_the_dead_are_found() -> None:
    """Those that tell know k; when some of these are dead, the closest are asked for more."""
    one = rig(dht(k=3, alpha=1), 2)
    near = by_distance(TARGET, list(range(3, 60)))
    dead, alive = near[:2], near[2:]
    effects = one.do(CLOSEST)
    waiting = asked(effects)
    for _ in range(40):
        for number, message in waiting:
            if number not in dead:
                effects += one.hear(number, reply(message, *near[: message.most]))
        effects += one.wait(1_000)
        waiting = [pair for pair in asked(effects) if pair not in waiting]
        if (done := answer(effects, 5)) is not None:
            break
    assert done is not None
    assert numbers(done.contacts) == by_distance(TARGET, [1, 2, *alive])[:3]


def play(one: Rig, alive: dict[int, list[int]], effects: list[seam.Effect]) -> list[int]:
    """Answer for the live ones with what they name, and fail to connect to all others; returns
    the peers that were found."""
    for _ in range(200):
        waiting, later = asked(effects), []
        for number, message in waiting:
            if number in alive:
                later += one.hear(number, reply(message, *alive[number]))
            else:
                later += one.lose(number)
        effects = later or one.wait(1_000)
        if (done := answer(effects, 5)) is not None:
            return numbers(done.contacts)
    raise AssertionError("no answer")


def test_when_the_closest_of_the_table_are_dead_the_others_are_asked() -> None:
    """The table is a teller as any other: the dead in it must not hide the living beyond."""
    known = by_distance(TARGET, list(range(2, 40)))
    one = rig(dht(k=3, alpha=2), *known)
    held = by_distance(TARGET, [number_of(entry.contact) for entry in machine(one).home.table])
    last = held[-1]
    assert len(held) > 6
    assert sorted(play(one, {last: []}, one.do(CLOSEST))) == sorted([1, last])


def test_when_the_whole_table_is_dead_neighbours_of_the_overlay_are_asked() -> None:
    one = rig(dht(k=2, alpha=2), 2, 3, 4)
    one.meet(9)  # known to Cyclon, and not in the table
    assert machine(one).home.table.get(location(9)) is None
    assert sorted(play(one, {9: []}, one.do(CLOSEST))) == [1, 9]


def test_a_peer_that_names_the_dead_is_no_liar_where_most_are_dead() -> None:
    """After a crash everybody names the dead; all others that they name are needed."""
    near = by_distance(TARGET, list(range(100, 140)))
    one = rig(dht(), *range(2, 12))
    living = near[12]
    found = play(one, {2: near[:13], living: []}, one.do(CLOSEST))
    assert sorted(found) == sorted([1, 2, living])
    assert one.peer.counters["dht_disbelieved"] == 0


def test_a_peer_that_a_liar_named_is_asked_if_another_names_it_too() -> None:
    bogus = by_distance(TARGET, list(range(1_000, 5_000)))[:19]
    far = by_distance(TARGET, list(range(100, 140)))[-1]
    liar, honest = by_distance(TARGET, list(range(2, 9)))[:2]
    one = rig(dht(alpha=1), *range(2, 9))
    alive: dict[int, list[int]] = {number: [] for number in range(2, 9)}
    alive |= {liar: [*bogus, far], far: []}
    assert far not in play(one, alive, one.do(CLOSEST))
    assert one.peer.counters["dht_disbelieved"] > 0
    alive[honest] = [far]
    one = rig(dht(alpha=1), *range(2, 9))
    assert far in play(one, alive, one.do(CLOSEST))


def test_only_the_asked_one_can_answer_and_only_in_kind() -> None:
    one = rig(dht(k=2, alpha=2), 2, 3)
    number, message = begin(one)[0]
    stranger = 9
    assert asked(one.hear(stranger, reply(message, 20, 21))) == []
    assert one.hear(number, ProbeReply(message.request, True)) == []
    assert machine(one).home.table.get(location(20)) is None
    assert asked(one.hear(number, reply(message, 20, 21)))  # the true one counts


def test_hearsay_does_not_enter_the_table() -> None:
    one = rig(dht(), 2, 3)
    number, message = begin(one)[0]
    one.hear(number, reply(message, 20, 21))
    known = {number_of(entry.contact) for entry in machine(one).home.table}
    assert known == {2, 3}


def test_a_peer_that_is_gone_leaves_the_table() -> None:
    one = rig(dht(), 2, 3)
    number, message = begin(one)[0]
    one.hear(number, FindReply(message.request, False))
    assert machine(one).home.table.get(location(number)) is None


def test_an_asker_becomes_known_and_is_not_told_of_itself() -> None:
    one = rig(dht(), 2, 3)
    effects = one.hear(4, request(77, location(4)))
    [answered] = [e.message for e in effects if isinstance(e, seam.Send)]
    assert isinstance(answered, FindReply)
    assert answered.request == 77 and answered.member
    assert sorted(number_of(n.contact) for n in answered.closer) == [2, 3]
    assert machine(one).home.table.get(location(4)) is not None


def test_no_more_is_told_than_asked_for() -> None:
    one = rig(dht(), *range(2, 30))
    for most in (1, 5, 64):
        message = FindRequest(
            1, 0, request(0).role, request(0).role, as_bytes(TARGET), 0, b"", most
        )
        [effect] = [e for e in one.hear(40, message) if isinstance(e, seam.Send)]
        assert isinstance(effect.message, FindReply)
        assert len(effect.message.closer) == min(most, 28)


def test_a_liar_costs_few_requests() -> None:
    """It names peers right beside the target that do not exist; those that do are found anyway."""
    settings = dht(k=4, alpha=2)
    honest = list(range(2, 30))
    near = by_distance(TARGET, honest)
    liar = near[0]
    bogus = by_distance(TARGET, list(range(1_000, 5_000)))[:60]
    one = rig(settings, liar, *near[-3:])
    effects = one.do(CLOSEST)
    vain: set[int] = set()
    handled = 0
    for _ in range(200):
        for number, message in asked(effects)[handled:]:
            handled += 1
            if number in bogus:
                vain.add(number)
            elif number == liar:
                effects += one.hear(number, FindReply(message.request, True, told(*bogus)))
            else:
                effects += one.hear(number, reply(message, *near[:4]))
        effects += one.wait(250)
        if (done := answer(effects, 5)) is not None:
            break
    assert done is not None
    assert numbers(done.contacts) == by_distance(TARGET, [1, *honest])[:4]
    assert len(vain) <= 4  # of one answer no more than k names are read


def test_a_peer_that_names_only_the_dead_is_not_listened_to() -> None:
    liar, bogus = 2, by_distance(TARGET, list(range(1_000, 5_000)))[:20]
    one = rig(dht(), liar, 3)
    effects = one.do(CLOSEST)
    vain: set[int] = set()
    for _ in range(60):
        waiting, effects = asked(effects), []
        for number, message in waiting:
            if number == liar:
                effects += one.hear(number, FindReply(message.request, True, told(*bogus)))
            elif number in bogus:  # no connection can be made
                vain.add(number)
                effects += one.lose(number)
            else:
                effects += one.hear(number, reply(message))
        if answer(effects, 5) is not None:
            break
    assert answer(effects, 5) is not None
    assert len(vain) < 10


def test_lookups_beyond_the_bound_wait_and_beyond_that_are_refused() -> None:
    one = rig(dht(lookups_max=2, waiting_max=3), 2, 3)
    outcomes: list[str] = []
    for token in range(10, 20):
        effects = one.do(seam.DhtClosest(token, as_bytes(TARGET)))
        outcomes += [e.outcome for e in effects if isinstance(e, seam.Answer)]
    assert outcomes == ["dropped"] * 5
    rest = one.wait(60_000)
    assert len([e for e in rest if isinstance(e, seam.Answer)]) == 5


def test_many_that_know_nobody_end_at_once() -> None:
    one = Rig(1, rig(dht()).peer.config)
    for token in range(10, 2_000):
        done = answer(one.do(seam.DhtClosest(token, as_bytes(TARGET))), token)
        assert done is not None and numbers(done.contacts) == [1]


def test_a_peer_that_leaves_answers_what_is_open() -> None:
    one = rig(dht(), 2, 3)
    begin(one)
    done = answer(one.do(seam.Leave()), 5)
    assert done is not None and done.outcome == "dropped"


def test_without_a_dht_others_are_told_so() -> None:
    one = Rig(1)
    [effect] = [e for e in one.hear(2, request(7)) if isinstance(e, seam.Send)]
    assert effect.message == FindReply(7, False)
    done = answer(one.do(CLOSEST), 5)
    assert done is not None and done.outcome == "refused"
