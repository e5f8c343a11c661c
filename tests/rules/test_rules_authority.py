"""Who may publish, write versions and hang sub-topics; and merkle paths over all of it."""

from __future__ import annotations

import pytest
from tests.history_kit import ANNA, BEN, CAROL, SPORTS, Key, event, topic

from weft.documents import authority, merkle
from weft.documents.descriptor import Event, TopicVersion
from weft.documents.refusal import Reason, Refused
from weft.ids import BadId, Cid, Topic, cid_of, cid_text

FIRST = topic(owners=[BEN.peer], allowed=[CAROL.peer])
REVOKED = topic(owners=[BEN.peer], allowed=[], parent=FIRST.cid)


def judged(
    key: Key,
    linked: TopicVersion | None,
    newest: TopicVersion | None,
    vouched: bool = False,
    name: Topic = SPORTS,
) -> Reason | None:
    made = event(b"x", key=key, link=linked.cid if linked else None)
    return authority.judge_event(made, name, linked, newest, vouched)


def test_owners_and_allowed_publishers_may() -> None:
    for key in (ANNA, BEN, CAROL):
        assert judged(key, FIRST, FIRST) is None
    assert judged(Key("mallory"), FIRST, FIRST) == Reason.NOT_ALLOWED
    assert judged(Key("mallory"), FIRST, FIRST, vouched=True) == Reason.NOT_ALLOWED


def test_anyone_may_where_the_owners_say_so() -> None:
    assert judged(Key("mallory"), topic(), topic()) is None


def test_the_revoked_may_not_go_on_but_history_stays() -> None:
    assert judged(CAROL, REVOKED, REVOKED) == Reason.NOT_ALLOWED
    assert judged(CAROL, FIRST, REVOKED) == Reason.NOT_ALLOWED
    assert judged(CAROL, FIRST, REVOKED, vouched=True) is None
    assert judged(ANNA, FIRST, REVOKED) is None


def test_a_topic_that_nobody_owns() -> None:
    assert judged(CAROL, None, None) is None
    assert judged(CAROL, None, FIRST) == Reason.NOT_ALLOWED
    assert judged(CAROL, None, FIRST, vouched=True) is None


def test_wrong_topic() -> None:
    assert judged(ANNA, FIRST, FIRST, name=Topic("/fruits")) == Reason.WRONG_TOPIC
    assert judged(ANNA, topic("/fruits"), FIRST) == Reason.WRONG_TOPIC
    made = event(b"x", link=FIRST.cid)
    assert authority.judge_event(made, SPORTS, REVOKED, REVOKED, False) == Reason.WRONG_TOPIC
    assert authority.judge_event(made, SPORTS, None, REVOKED, False) == Reason.UNKNOWN_TOPIC


def test_versions() -> None:
    assert authority.judge_version(REVOKED, FIRST) is None
    assert authority.judge_version(topic(key=BEN, parent=FIRST.cid), FIRST) is None
    taken = topic(key=CAROL, parent=FIRST.cid)
    assert authority.judge_version(taken, FIRST) == Reason.NOT_OWNER
    assert authority.judge_version(topic(), FIRST) == Reason.WRONG_TOPIC
    other = topic("/fruits", parent=FIRST.cid)
    assert authority.judge_version(other, FIRST) == Reason.WRONG_TOPIC


def test_sub_topics() -> None:
    football, apples = topic("/sports/football"), topic("/fruits/apples")
    deeper = topic("/sports/football/uk")
    parent = topic(sub_topics={"football": football.cid, "apples": apples.cid, "uk": deeper.cid})
    assert authority.judge_sub_topic(parent, "football", football) is None
    assert authority.judge_sub_topic(parent, "football", apples) == Reason.WRONG_TOPIC
    assert authority.judge_sub_topic(parent, "golf", football) == Reason.WRONG_TOPIC
    assert authority.judge_sub_topic(parent, "apples", apples) == Reason.OUTSIDE_PARENT
    assert authority.judge_sub_topic(parent, "uk", deeper) == Reason.OUTSIDE_PARENT
    assert authority.sub_topic_segment(SPORTS, Topic("/sports/football")) == "football"
    for name in ("/sports", "/sportsfootball", "/fruits", "/sports/football/uk"):
        assert authority.sub_topic_segment(SPORTS, Topic(name)) is None


# --- merkle paths ---------------------------------------------------------------------------------

FOOTBALL = topic("/sports/football")
PARENT = topic(sub_topics={"football": FOOTBALL.cid}, parent=FIRST.cid)
ROOTS = event(b"one"), event(b"two", key=BEN)
CHILD = event(b"three", *ROOTS, link=PARENT.cid, metadata={"language": "en"})
LIKE_A_LINK = event(CHILD.cid)
BLOCKS: dict[Cid, bytes] = {
    found.cid: found.block
    for found in (FOOTBALL, FIRST, PARENT, *ROOTS, CHILD, LIKE_A_LINK)
    if isinstance(found, Event | TopicVersion)
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
def test_paths_resolve(start: Event | TopicVersion, path: str, value: object) -> None:
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
def test_paths_that_lead_nowhere(start: Event | TopicVersion, path: str) -> None:
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
