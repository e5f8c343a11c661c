"""The XOR metric, prefixes and buckets, for any locations."""

from __future__ import annotations

from hashlib import sha256

from hypothesis import given
from hypothesis import strategies as st

from weft.rules import prefix

locations = st.integers(0, (1 << prefix.BITS) - 1)
small = st.integers(0, 255)


@given(locations, locations, locations)
def test_xor_is_a_metric_with_one_peer_at_each_distance(one: int, other: int, third: int) -> None:
    assert (one ^ other) == (other ^ one)
    assert (one ^ other == 0) == (one == other)
    assert (one ^ third) <= (one ^ other) + (other ^ third)
    if other != third:
        assert (one ^ other) != (one ^ third)


@given(locations, locations)
def test_the_common_prefix_is_what_the_bits_say(one: int, other: int) -> None:
    bits = [f"{location:0256b}" for location in (one, other)]
    shared = next((i for i in range(prefix.BITS) if bits[0][i] != bits[1][i]), prefix.BITS)
    assert prefix.common_prefix(one, other) == shared


@given(locations, locations, locations)
def test_a_longer_prefix_is_closer(target: int, one: int, other: int) -> None:
    if prefix.common_prefix(target, one) > prefix.common_prefix(target, other):
        assert one ^ target < other ^ target


@given(small, st.lists(small, unique=True), st.integers(0, 9))
def test_closest_is_the_head_of_all_by_distance(target: int, some: list[int], count: int) -> None:
    assert prefix.closest(target, some, count) == sorted(some, key=lambda x: x ^ target)[:count]


@given(locations, st.integers(0, prefix.BITS - 1), locations)
def test_a_target_lies_in_the_bucket_it_was_made_for(own: int, bucket: int, random: int) -> None:
    target = prefix.in_bucket(own, bucket, prefix.BITS, random)
    assert prefix.common_prefix(own, target) == bucket


def test_targets_in_a_bucket_reach_all_of_it() -> None:
    reached = {prefix.in_bucket(0b0110_0000, 2, 8, number) for number in range(64)}
    assert reached == set(range(0b0100_0000, 0b0110_0000))


def test_locations_of_a_topic_share_its_prefix() -> None:
    one, other = prefix.joined(b"/a", b"p"), prefix.joined(b"/a", b"q")
    assert prefix.common_prefix(one, other, 2 * prefix.BITS) >= prefix.BITS
    assert prefix.common_prefix(one, prefix.joined(b"/b", b"p"), 2 * prefix.BITS) < prefix.BITS


def test_keys_begin_with_their_kind() -> None:
    assert prefix.block_key(b"x") == b"\x01" + sha256(b"x").digest()
    assert prefix.as_bytes(prefix.location_of(b"x")) == sha256(b"x").digest()
