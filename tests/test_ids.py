"""The names of topics, those that carry their owner's key above all."""

from __future__ import annotations

import pytest
from multiformats import CID

from signed_kit import ANNA, BEN, topic
from weft.documents.descriptor import open_topic
from weft.ids import (
    BadId,
    PeerId,
    Topic,
    cid_of,
    cid_text,
    network_of,
    owned_name,
    owner_in,
    parse_contact,
    parse_path,
    parse_peer,
    parse_topic,
    peer_text,
)

MINE = f"/~{peer_text(ANNA.peer)}"


def test_a_name_may_carry_its_owners_key() -> None:
    name = owned_name(ANNA.peer, "/orders/eu")
    assert name == f"{MINE}/orders/eu" == parse_topic(name)
    for topic_name in (name, f"{MINE}/orders", MINE):
        assert owner_in(Topic(topic_name)) == ANNA.peer
    assert owner_in(owned_name(BEN.peer, "/orders")) == BEN.peer


@pytest.mark.parametrize("name", ["/orders", "/orders/~x", "/a~b", f"/orders{MINE}"])
def test_other_names_carry_none(name: str) -> None:
    assert owner_in(parse_topic(name)) is None


@pytest.mark.parametrize(
    "name", ["/~", "/~/orders", "/~anna/orders", f"{MINE}x/orders", f"{MINE[:-1]}/orders"]
)
def test_a_malformed_owner_is_named(name: str) -> None:
    with pytest.raises(BadId, match="owner's peer id must follow"):
        parse_topic(name)


def test_every_letter_of_the_key_counts() -> None:
    for place in range(len("/~12D3KooW"), len(MINE)):
        other = "2" if MINE[place] != "2" else "3"
        changed = f"{MINE[:place]}{other}{MINE[place + 1 :]}/orders"
        assert owner_in(Topic(changed)) != ANNA.peer


def test_a_path_for_an_owner_is_checked_too() -> None:
    with pytest.raises(BadId, match="empty or unusable"):
        owned_name(ANNA.peer, "//orders")


def test_what_was_stored_before_the_rule_still_opens() -> None:
    """A store may hold a topic that begins with '~' and no key; it is nobody's by its name."""
    assert parse_path("/~home") == "/~home" and owner_in(Topic("/~home")) is None
    version = topic("/~home")
    assert open_topic(version.block, version.cid) == version


def test_peer_ids_in_the_form_of_a_cid_are_read() -> None:
    """As `ipfs key list --ipns-base b32` and js-libp2p's `toCID` write them."""
    peer = PeerId(bytes(range(32)))
    key = bytes((0x00, 0x24, 0x08, 0x01, 0x12, 0x20)) + peer
    text = str(CID("base32", 1, "libp2p-key", key))
    assert text.startswith("bafz") and parse_peer(text) == peer
    assert parse_contact(f"/ip4/127.0.0.1/tcp/4001/p2p/{text}").peer == peer
    raw = str(CID("base32", 1, "raw", key))  # the key's bytes as something else than a key
    for wrong in (text[:-4], text.upper(), raw, cid_text(cid_of(b"a block")), "baf"):
        with pytest.raises(BadId):
            parse_peer(wrong)


@pytest.mark.parametrize(
    ("address", "network"),
    [
        ("/ip4/127.0.0.7/tcp/1", ("127.0.0.7", True)),
        ("/ip4/10.1.2.3/tcp/1", ("10.1.2.3", True)),
        ("/ip4/8.8.4.4/tcp/1", ("8.8.4.4", False)),
        ("/ip6/2600:1:2:3:4:5:6:7/tcp/1", ("2600:1:2:3::/64", False)),
        ("/ip6/::1/tcp/1", ("::/64", True)),
        ("/dns/Example.org/tcp/1", ("example.org", False)),
        ("/dns/localhost/tcp/1", ("localhost", True)),
        ("nowhere", ("", False)),
    ],
)
def test_what_peers_at_one_place_have_in_common(address: str, network: tuple[str, bool]) -> None:
    assert network_of(address) == network
