"""Merkle paths over topics and events."""

from __future__ import annotations

import pytest

from signed_kit import ANNA, BEN, CAROL, event, topic
from weft.documents import merkle
from weft.documents.descriptor import SealedEvent, TopicVersion
from weft.documents.refusal import Reason, Refused
from weft.ids import BadId, Cid, cid_of, cid_text

FIRST = topic(owners=[BEN.peer], allowed=[CAROL.peer])
REVOKED = topic(owners=[BEN.peer], allowed=[], parent=FIRST.cid)
FOOTBALL = topic("/sports/football")
PARENT = topic(sub_topics={"football": FOOTBALL.cid}, parent=FIRST.cid)
ROOTS = event(b"one"), event(b"two", key=BEN)
CHILD = event(b"three", *ROOTS, link=PARENT.cid, metadata={"language": "en"})
LIKE_A_LINK = event(CHILD.cid)
BLOCKS: dict[Cid, bytes] = {
    found.cid: found.block
    for found in (FOOTBALL, FIRST, PARENT, *ROOTS, CHILD, LIKE_A_LINK)
    if isinstance(found, SealedEvent | TopicVersion)
}


@pytest.mark.parametrize(
    ("start", "path", "value"),
    [
        (PARENT, "", merkle.document(PARENT)),
        (PARENT, "/name", "/sports"),
        (PARENT, "/#", {"football": merkle.Link(FOOTBALL.cid)}),
        (PARENT, "/#/football", merkle.document(FOOTBALL)),
        (PARENT, "/#/football/name", "/sports/football"),
        (PARENT, "/parent", merkle.document(FIRST)),
        (PARENT, "/parent/allowed/0", CAROL.peer),
        (CHILD, "/parents/0/payload", next(e for e in ROOTS if e.cid == CHILD.parents[0]).payload),
        (CHILD, "/parents/1/payload", next(e for e in ROOTS if e.cid == CHILD.parents[1]).payload),
        (CHILD, "/parent/height", 1),
        (CHILD, "/topic/name", "/sports"),
        (CHILD, "/topic/link/#/football/author", ANNA.peer),
        (CHILD, "/metadata/language", "en"),
        (LIKE_A_LINK, "/payload", CHILD.cid),
        (FIRST, "/parent", None),
    ],
)
def test_paths_resolve(start: SealedEvent | TopicVersion, path: str, value: object) -> None:
    assert merkle.resolve(f"/{cid_text(start.cid)}{path}", BLOCKS.get) == value


@pytest.mark.parametrize(
    ("start", "path"),
    [
        (PARENT, "/#/golf"),
        (PARENT, "/nothing"),
        (PARENT, "/name/0"),
        (CHILD, "/parents/2"),
        (CHILD, "/parents/-1"),
        (CHILD, "/parents/x"),
        (ROOTS[0], "/parent"),
        (FIRST, "/parent/name"),
        (LIKE_A_LINK, "/payload/height"),
        (CHILD, "/parent" * 300),
    ],
)
def test_paths_that_lead_nowhere(start: SealedEvent | TopicVersion, path: str) -> None:
    with pytest.raises(merkle.Unresolved) as unresolved:
        merkle.resolve(f"/{cid_text(start.cid)}{path}", BLOCKS.get)
    assert unresolved.value.missing is None


def test_a_missing_block_is_named() -> None:
    with pytest.raises(merkle.Unresolved) as unresolved:
        merkle.resolve(f"/{cid_text(REVOKED.cid)}/parent", {REVOKED.cid: REVOKED.block}.get)
    assert unresolved.value.missing == FIRST.cid


def test_a_wrong_block_on_the_way_is_refused() -> None:
    with pytest.raises(Refused) as refused:
        merkle.resolve(f"/{cid_text(PARENT.cid)}", lambda cid: FIRST.block)
    assert refused.value.reason == Reason.BAD_CID


@pytest.mark.parametrize("path", ["", "/", "/sports", f"/{cid_text(cid_of(b''))[:-1]}/name"])
def test_a_path_starts_with_a_cid(path: str) -> None:
    with pytest.raises(BadId):
        merkle.resolve(path, BLOCKS.get)
