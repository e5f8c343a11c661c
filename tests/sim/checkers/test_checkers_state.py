"""The judges of inner state accept sound snapshots and name every fault put into them."""

from __future__ import annotations

from dataclasses import replace

from weft.ids import Topic
from weft.protocol.config import Config, Cyclon, Dissemination, Links, Tera
from weft.sim.checkers.state import (
    PeerState,
    TopicState,
    check_bounds,
    check_ghosts,
    check_merged,
    components,
)
from weft.sim.record import Life, Record, Stay

TOPIC = Topic("/a")
SMALL = Config(
    cyclon=Cyclon(view_size=3, shuffle_length=2),
    tera=Tera(table_size=5, pending_max=4),
    links=Links(wanted=1, most=2),
    dissemination=Dissemination(
        recent_events_max=6, recent_bytes_max=70, streams_max=8, gaps_max=9
    ),
)
FULL = TopicState(
    overlay=1,
    view=(1, 2, 3),
    links=(1, 2),
    recent_events=6,
    recent_bytes=70,
    streams=8,
    gaps_most=9,
)


def _bounds(state: PeerState) -> list[str]:
    return check_bounds([state], SMALL, 77)


def test_full_tables_are_within_bounds_and_one_more_is_not() -> None:
    full = PeerState(0, view=(1, 2, 3), access_points=5, pending=4, topics={TOPIC: FULL})
    assert _bounds(full) == []
    over = [
        (replace(full, view=(1, 2, 3, 4)), "view holds 4, more than 3"),
        (replace(full, access_points=6), "access point table holds 6, more than 5"),
        (replace(full, pending=5), "publishes in progress holds 5, more than 4"),
    ]
    parts = [
        (replace(FULL, view=(1, 2, 3, 4)), "view of /a holds 4, more than 3"),
        (replace(FULL, links=(1, 2, 3)), "links of /a holds 3, more than 2"),
        (replace(FULL, recent_events=7), "recent events of /a holds 7, more than 6"),
        (replace(FULL, recent_bytes=71), "recent bytes of /a holds 71, more than 70"),
        (replace(FULL, streams=9), "publishers of /a holds 9, more than 8"),
        (replace(FULL, gaps_most=10), "gaps of /a holds 10, more than 9"),
    ]
    over += [(replace(full, topics={TOPIC: part}), text) for part, text in parts]
    for state, text in over:
        assert _bounds(state) == [f"peer 0 at 77 ms: {text}"]


def test_view_holds_neither_its_owner_nor_anybody_twice() -> None:
    assert _bounds(PeerState(1, view=(1, 2))) == ["peer 1 at 77 ms: its view holds the peer itself"]
    assert _bounds(PeerState(0, view=(2, 2))) == ["peer 0 at 77 ms: its view holds a peer twice"]
    part = replace(FULL, links=(0, 0))
    assert len(_bounds(PeerState(0, topics={TOPIC: part}))) == 2


def test_components() -> None:
    edges = {0: (1,), 1: (), 2: (1, 9), 3: (4,), 4: (3,), 5: ()}
    assert components(list(edges), edges) == [[0, 1, 2], [3, 4], [5]]


def _world(count: int = 4) -> tuple[Record, dict[int, PeerState]]:
    record = Record()
    states = {}
    for peer in range(count):
        record.lives.append(Life(peer, 1, 0))
        record.stays.append(Stay(peer, 1, TOPIC, 10, joined_ms=20))
        part = TopicState(overlay=5, view=((peer + 1) % count,))
        states[peer] = PeerState(peer, view=((peer + 1) % count,), topics={TOPIC: part})
    return record, states


def test_ring_is_merged() -> None:
    record, states = _world()
    assert check_merged(record, states, 9) == []


def test_split_general_overlay_is_named() -> None:
    record, states = _world()
    for peer, other in ((0, 1), (1, 0), (2, 3), (3, 2)):
        states[peer] = replace(states[peer], view=(other,))
    assert check_merged(record, states, 9) == [
        "the general overlay is in 2 pieces at 9 ms: peers [[0, 1], [2, 3]]"
    ]


def test_split_topic_and_differing_ids_are_named() -> None:
    record, states = _world()
    for peer, other in ((0, 1), (1, 0), (2, 3), (3, 2)):
        part = TopicState(overlay=peer // 2, view=(other,))
        states[peer] = replace(states[peer], topics={TOPIC: part})
    assert check_merged(record, states, 9) == [
        "/a still has 2 overlays at 9 ms: 0: peers [0, 1]; 1: peers [2, 3]",
        "the overlay of /a is in 2 pieces at 9 ms: peers [[0, 1], [2, 3]]",
    ]
    # Where peers lie, ids are not compared; that a topic is in pieces counts all the same.
    assert check_merged(record, states, 9, one_id=False) == check_merged(record, states, 9)[1:]


def test_links_connect_too_and_dead_peers_do_not() -> None:
    record, states = _world()
    for peer, other in ((0, 1), (1, 0), (2, 3), (3, 2)):
        states[peer] = replace(states[peer], topics={TOPIC: TopicState(5, view=(other,))})
    linked = TopicState(5, view=(1,), links=(2,))
    states[0] = replace(states[0], topics={TOPIC: linked})
    assert check_merged(record, states, 9) == []
    # A bridge over a peer that has gone is none.
    record, states = _world(3)
    for peer, other in ((0, 1), (1, 0), (2, 1)):
        part = TopicState(5, view=(other,))
        states[peer] = replace(states[peer], view=(other,), topics={TOPIC: part})
    record.lives[1].end_ms = record.stays[1].end_ms = 500
    del states[1]
    assert check_merged(record, states, 9) == [
        "the general overlay is in 2 pieces at 9 ms: peers [[0], [2]]",
        "the overlay of /a is in 2 pieces at 9 ms: peers [[0], [2]]",
    ]


def test_subscriber_without_an_overlay_is_named() -> None:
    record, states = _world()
    states[3] = replace(states[3], topics={})
    assert "peer 3 is subscribed to /a but in no overlay of it" in check_merged(record, states, 9)


def test_ghosts_are_counted_and_links_to_them_named() -> None:
    record, states = _world()
    record.lives[1].end_ms = 500
    del states[1]
    # Peer 0 names peer 1 in two of the six entries that are left.
    assert check_ghosts(record, states, 9, percent_max=34) == []
    assert check_ghosts(record, states, 9, percent_max=33) == [
        "2 of 6 view entries at 9 ms name peers that are gone"
    ]
    part = TopicState(5, view=(2,), links=(1, 3))
    states[0] = replace(states[0], topics={TOPIC: part})
    assert check_ghosts(record, states, 9, percent_max=34) == [
        "peer 0 keeps links in /a to [1] at 9 ms"
    ]
