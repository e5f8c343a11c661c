"""The words everything else uses: peer ids, addresses, topics, content identifiers.

A peer is named as in libp2p: by its Ed25519 public key. Inside weft a `PeerId` is the bare
32-byte key; its text form is libp2p's (base58 of the identity multihash of the protobuf-wrapped
key, "12D3KooW..."), and an address is a multiaddr (`/ip4/127.0.0.1/tcp/4001/p2p/12D3KooW...`).

A block of data is named by its content, as in IPLD: a `Cid` is the 36 bytes of a version 1 content
identifier (dag-cbor, SHA-256); its text form is base32 ("bafyrei...").
"""

from __future__ import annotations

import base64
import hashlib
import ipaddress
import re
from functools import lru_cache
from typing import Annotated, NewType

from msgspec import Meta, Struct

from weft.errors import WeftError

PeerId = NewType("PeerId", bytes)
"""The raw 32-byte Ed25519 public key."""

Topic = NewType("Topic", str)
"""A UNIX-style path such as `/sports/football`; see `parse_topic`."""

Cid = NewType("Cid", bytes)
"""The 36 bytes of a CIDv1 that names a dag-cbor block by its SHA-256 hash; see `cid_of`."""

OverlayId = NewType("OverlayId", int)
"""Names one instance of a topic's overlay (63 bits); the smaller one survives a merge."""

GENERAL = Topic("")
"""The general overlay, which holds every peer, in places that name a topic."""

PEER_ID_BYTES = 32
CID_BYTES = 36
TOPIC_BYTES_MAX = 256
"""paper (TERA 4.2.2 assumes topics of 256 characters)."""

WirePeerId = Annotated[PeerId, Meta(min_length=PEER_ID_BYTES, max_length=PEER_ID_BYTES)]
WireCid = Annotated[Cid, Meta(min_length=CID_BYTES, max_length=CID_BYTES)]
WireTopic = Annotated[Topic, Meta(max_length=TOPIC_BYTES_MAX)]
WireAddress = Annotated[str, Meta(max_length=128)]


class Contact(Struct, frozen=True, array_like=True, gc=False):
    """A peer and where it listens: all that is needed to talk to it."""

    peer: WirePeerId
    address: WireAddress  # a multiaddr without its /p2p part


class BadId(WeftError, ValueError):
    """A topic, peer id or address that cannot be read; the text says what is wrong."""


# --- topics -------------------------------------------------------------------------------

_SEGMENT = re.compile(r"[^/\x00-\x1f\x7f]+")

OWNED = "/~"
"""How a topic begins that carries its owner's key: `/~12D3KooW.../orders`."""


def parse_topic(text: str) -> Topic:
    """Check that `text` can be the name of a topic and return it as one."""
    topic = parse_path(text)
    if text.startswith(OWNED) and owner_in(topic) is None:
        first = text[len(OWNED) :].partition("/")[0]
        raise BadId(
            f"topic {text!r} begins with '~', so its owner's peer id must follow, as in "
            f"'/~12D3KooW.../orders'; {first!r} is not one"
        )
    return topic


@lru_cache(maxsize=4_096)
def owner_in(topic: Topic) -> PeerId | None:
    """The owner's key in a topic's name, which owns all topics below it as well; None: no key."""
    if not topic.startswith(OWNED):
        return None
    try:
        return parse_peer(topic[len(OWNED) :].partition("/")[0])
    except BadId:
        return None


def owned_name(owner: PeerId, path: str) -> Topic:
    """The name of a topic that this key owns, from a path such as `/orders`."""
    return parse_topic(f"{OWNED}{peer_text(owner)}{path}")


WILDCARDS = frozenset(("#", "+", "*", "**", ">"))
"""Segments that mean "any" in MQTT, NATS and shells."""


def parse_plain_topic(text: str) -> Topic:
    """As `parse_topic`, for a topic to publish in or to subscribe to. A wildcard is refused: it
    would be taken literally, and never match what its user means."""
    topic = parse_topic(text)
    segments = text.split("/")
    place = next((at for at, segment in enumerate(segments) if segment in WILDCARDS), None)
    if place is not None:
        above = "/".join(segments[:place])
        instead = (
            f"put {above} into a hierarchy at all peers (hierarchies=[{above!r}], --hierarchy "
            f"{above}) and subscribe to it, or"
            if above
            else "no topic stands above all others, so"
        )
        raise BadId(
            f"topic {text!r} has a wildcard {segments[place]!r}, and weft knows no wildcards: "
            f"{instead} subscribe to several topics"
        )
    return topic


def parse_path(text: str) -> Topic:
    """Check that `text` is a path. Names that are only read, not made, are checked no further:
    older peers and stores may hold names with a '~' that no peer id follows."""
    if not text.startswith("/"):
        raise BadId(f"topic {text!r} must start with '/', for example '/sports/football'")
    try:
        size = len(text.encode())
    except UnicodeEncodeError as error:
        raise BadId(f"topic {text!r} cannot be written in UTF-8") from error
    if size > TOPIC_BYTES_MAX:
        raise BadId(f"topic of {size} bytes is too long (at most {TOPIC_BYTES_MAX})")
    for segment in text[1:].split("/"):
        if not _SEGMENT.fullmatch(segment) or segment in (".", ".."):
            raise BadId(f"topic {text!r} has an empty or unusable segment {segment!r}")
    return Topic(text)


# --- peer ids -----------------------------------------------------------------------------

_ALPHABET = "123456789ABCDEFGHJKLMNPQRSTUVWXYZabcdefghijkmnopqrstuvwxyz"
_VALUES = {letter: value for value, letter in enumerate(_ALPHABET)}
# Identity multihash (0x00, length 36) of the protobuf {type: Ed25519 (1), data: 32 bytes}.
_PEER_PREFIX = bytes((0x00, 0x24, 0x08, 0x01, 0x12, 0x20))


def base58_encode(data: bytes) -> str:
    number = int.from_bytes(data, "big")
    letters = []
    while number:
        number, digit = divmod(number, 58)
        letters.append(_ALPHABET[digit])
    zeros = len(data) - len(data.lstrip(b"\0"))
    return "1" * zeros + "".join(reversed(letters))


def base58_decode(text: str) -> bytes:
    number = 0
    for letter in text:
        if letter not in _VALUES:
            raise BadId(f"{letter!r} is not a base58 letter")
        number = number * 58 + _VALUES[letter]
    zeros = len(text) - len(text.lstrip("1"))
    return b"\0" * zeros + number.to_bytes((number.bit_length() + 7) // 8, "big")


_KEY_CID = bytes((0x01, 0x72))
"""CID version 1, codec libp2p-key; the multihash that follows is the peer id."""


@lru_cache(maxsize=1_024)  # a status names some forty peers, again and again the same ones
def peer_text(peer: PeerId) -> str:
    """The libp2p text form of a peer id."""
    return base58_encode(_PEER_PREFIX + peer)


def peer_short(peer: PeerId) -> str:
    """The last eight letters of the text form: enough to tell peers apart on a screen."""
    return peer_text(peer)[-8:]


def parse_peer(text: str) -> PeerId:
    """A peer id in either of libp2p's text forms: "12D3KooW…", or as a CID, "bafz…", which some
    tools print and names of hosts need."""
    if len(text) > 72:
        raise BadId("a peer id is at most 72 letters long")
    if text.startswith("baf"):
        data = multibase_bytes(text)
        if not data.startswith(_KEY_CID):
            raise BadId(f"{text!r} is a CID, but not one of a peer's key")
        data = data[len(_KEY_CID) :]
    else:
        data = base58_decode(text)
    if not data.startswith(_PEER_PREFIX) or len(data) != len(_PEER_PREFIX) + PEER_ID_BYTES:
        raise BadId(f"{text!r} is not an Ed25519 peer id (they start with '12D3KooW')")
    return PeerId(data[len(_PEER_PREFIX) :])


def peer_number(peer: PeerId) -> int:
    """The peer's coordinate in keyed draws (64 bits)."""
    return int.from_bytes(peer[:8], "big")


# --- content identifiers --------------------------------------------------------------------

CID_PREFIX = bytes((0x01, 0x71, 0x12, 0x20))
"""CID version 1, codec dag-cbor, hash SHA-256 of 32 bytes; every block of weft has this one."""


def cid_of(block: bytes) -> Cid:
    """The name of a dag-cbor block."""
    return Cid(CID_PREFIX + hashlib.sha256(block).digest())


def is_cid(data: bytes) -> bool:
    """Whether these bytes have the form of a `Cid`."""
    return len(data) == CID_BYTES and data.startswith(CID_PREFIX)


def multibase_text(data: bytes) -> str:
    """IPLD's usual text form of binary names: 'b' and lower-case base32 without padding."""
    return "b" + base64.b32encode(data).decode().rstrip("=").lower()


def multibase_bytes(text: str) -> bytes:
    """The bytes of such a text; only the one text that `multibase_text` writes is read."""
    body = text[1:].upper()
    try:
        data = base64.b32decode(body + "=" * (-len(body) % 8))
    except ValueError as error:  # binascii.Error, or letters beyond ASCII
        raise BadId(f"{text!r} is not base32 text such as 'bafyrei...'") from error
    if multibase_text(data) != text:
        raise BadId(f"{text!r} is not base32 text such as 'bafyrei...'")
    return data


def cid_text(cid: Cid) -> str:
    """The usual text form, "bafyrei..."."""
    return multibase_text(cid)


def parse_cid(text: str) -> Cid:
    if len(text) > 64:
        raise BadId("a CID is at most 64 letters long")
    data = multibase_bytes(text)
    if not is_cid(data):
        raise BadId(f"{text!r} names no dag-cbor block (those start with 'bafyrei')")
    return Cid(data)


# --- addresses ----------------------------------------------------------------------------


def make_address(host: str, port: int) -> str:
    """`127.0.0.1`, 4001 → `/ip4/127.0.0.1/tcp/4001`."""
    try:
        version = ipaddress.ip_address(host).version
    except ValueError:
        return f"/dns/{host}/tcp/{port}"
    return f"/ip{version}/{host}/tcp/{port}"


def split_address(address: str) -> tuple[str, int]:
    """`/ip4/127.0.0.1/tcp/4001` → `127.0.0.1`, 4001."""
    parts = address.split("/")
    if len(parts) != 5 or parts[0] or parts[3] != "tcp" or not parts[4].isascii():
        raise BadId(f"{address!r} is not an address like /ip4/127.0.0.1/tcp/4001")
    kind, host, port = parts[1], parts[2], parts[4]
    if not port.isdigit() or not 0 < int(port) < 65536:
        raise BadId(f"{address!r} has no usable port")
    if kind in ("ip4", "ip6"):
        try:
            right = ipaddress.ip_address(host).version == int(kind[2])
        except ValueError:
            right = False
        if not right:
            raise BadId(f"{host!r} in {address!r} is not an {kind} address")
    elif kind not in ("dns", "dns4", "dns6") or not host:
        raise BadId(f"{address!r}: weft knows ip4, ip6 and dns addresses over tcp")
    return host, int(port)


def varint(number: int) -> bytes:
    """A number from 0 in unsigned LEB128, as multiformats and protobuf write it."""
    data = bytearray()
    while number > 0x7F:
        data.append(number & 0x7F | 0x80)
        number >>= 7
    data.append(number)
    return bytes(data)


@lru_cache(maxsize=4_096)
def network_of(address: str) -> tuple[str, bool]:
    """The part of an address that all peers of one machine or one operator share: the IPv4 address,
    the /64 of IPv6 (which one user has whole), or the name; and whether it is local, of this
    machine or a private network. An empty text for an address that cannot be read."""
    try:
        host, _ = split_address(address)
    except BadId:
        return "", False
    try:
        ip = ipaddress.ip_address(host)
    except ValueError:
        return host.lower(), host.lower() == "localhost"
    local = ip.is_loopback or ip.is_private or ip.is_link_local
    if ip.version == 4:
        return host, local
    return str(ipaddress.ip_network((ip, 64), strict=False)), local


def contact_text(contact: Contact) -> str:
    """The full multiaddr that others can join by."""
    return f"{contact.address}/p2p/{peer_text(contact.peer)}"


def parse_contact(text: str) -> Contact:
    address, found, peer = text.strip().rpartition("/p2p/")
    if not found:
        raise BadId(
            f"{text!r} names no peer: expected /ip4/HOST/tcp/PORT/p2p/PEER_ID, "
            "as printed by 'weft peer' when it starts"
        )
    split_address(address)
    return Contact(parse_peer(peer), address)
