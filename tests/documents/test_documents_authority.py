"""Which keys may publish in a topic, and which version of it follows which."""

from __future__ import annotations

import pytest

from signed_kit import ANNA, BEN, CAROL, SPORTS, Key, event, topic
from weft.documents import authority
from weft.documents.descriptor import TopicVersion
from weft.documents.refusal import Reason
from weft.ids import Topic, cid_text

FIRST = topic(owners=[BEN.peer], allowed=[CAROL.peer])
HOLDERS = FIRST.owners
REVOKED = topic(owners=[BEN.peer], allowed=[], parent=FIRST.cid)


def judged(
    key: Key,
    linked: TopicVersion | None,
    newest: TopicVersion | None,
    vouched: bool = False,
    name: Topic = SPORTS,
) -> Reason | None:
    made = event(b"x", key=key, link=linked.cid if linked else None)
    return authority.judge_event(made, name, HOLDERS, linked, newest, vouched)


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
    for made in (event(b"x", key=CAROL), event(b"x", key=CAROL, link=FIRST.cid)):
        assert authority.judge_event(made, SPORTS, None, None, None, False) is None


def test_without_a_version_only_holders_may() -> None:
    assert judged(ANNA, None, None) is None
    assert judged(ANNA, None, FIRST) is None
    for newest in (None, FIRST):
        assert judged(CAROL, None, newest) == Reason.NOT_ALLOWED
        assert judged(CAROL, None, newest, vouched=True) is None


def test_a_version_that_no_holder_wrote_says_nothing() -> None:
    own = topic(key=CAROL)
    assert judged(CAROL, own, None) == Reason.NOT_OWNER
    assert judged(CAROL, own, FIRST) == Reason.NOT_OWNER
    assert judged(CAROL, own, FIRST, vouched=True) is None  # it was history before


def test_wrong_topic() -> None:
    assert judged(ANNA, FIRST, FIRST, name=Topic("/fruits")) == Reason.WRONG_TOPIC
    assert judged(ANNA, topic("/fruits"), FIRST) == Reason.WRONG_TOPIC
    made = event(b"x", link=FIRST.cid)
    for linked, reason in ((REVOKED, Reason.WRONG_TOPIC), (None, Reason.UNKNOWN_TOPIC)):
        assert authority.judge_event(made, SPORTS, HOLDERS, linked, REVOKED, False) == reason


def test_sub_topics() -> None:
    assert authority.sub_topic_segment(SPORTS, Topic("/sports/football")) == "football"
    for name in ("/sports", "/sportsfootball", "/fruits", "/sports/football/uk"):
        assert authority.sub_topic_segment(SPORTS, Topic(name)) is None


# --- versions -------------------------------------------------------------------------------------


def test_a_version_follows_the_one_it_names() -> None:
    assert authority.judge_version(REVOKED, FIRST) is None
    assert authority.judge_version(FIRST, REVOKED) == Reason.WRONG_TOPIC
    other = topic("/fruits", owners=[BEN.peer], parent=FIRST.cid)
    assert authority.judge_version(other, FIRST) == Reason.WRONG_TOPIC
    strange = topic(key=CAROL, owners=[ANNA.peer, BEN.peer], parent=FIRST.cid)
    assert authority.judge_version(strange, FIRST) == Reason.NOT_OWNER
    more = topic(owners=[BEN.peer, CAROL.peer], parent=FIRST.cid)  # owners do not change
    assert authority.judge_version(more, FIRST) == Reason.NOT_OWNER
    taken = topic(
        owners=[BEN.peer], parent=REVOKED.cid, metadata={authority.MERGES: cid_text(FIRST.cid)}
    )
    assert authority.judge_version(taken, FIRST) is None
    assert authority.merges(topic(metadata={authority.MERGES: "nothing"})) is None


def test_what_hangs_under_a_segment_is_that_sub_topic() -> None:
    child, other = topic("/sports/football"), topic("/fruits")
    parent = topic(sub_topics={"football": child.cid, "fruits": other.cid})
    assert authority.judge_sub_topic(parent, "football", child) is None
    assert authority.judge_sub_topic(parent, "fruits", other) == Reason.OUTSIDE_PARENT
    assert authority.judge_sub_topic(parent, "tennis", child) == Reason.WRONG_TOPIC
    assert authority.judge_sub_topic(parent, "football", other) == Reason.WRONG_TOPIC


A, B, C, D = (bytes([number]) * 32 for number in range(1, 5))
Names = tuple[bytes, ...] | None


@pytest.mark.parametrize(
    ("base", "one", "other", "both"),
    [
        ((A, B), (B,), (A,), ()),  # two revocations
        ((A, B), (A, B, C), (A,), (A, C)),  # one lets in, one revokes
        ((A,), (A, C), (A, D), (A, C, D)),
        ((A,), (A, C), (A, C), (A, C)),
        ((A, B), None, (A,), (A,)),  # a revocation stands against letting anyone in
        ((A, B), None, (A, B, C), None),
        ((A, B), None, None, None),
        (None, (A,), None, (A,)),  # restricted by one
        (None, (A,), (B,), (A, B)),
        (None, (), None, ()),
        (None, None, None, None),
    ],
)
def test_changes_at_once_are_both_kept_and_revocations_win(
    base: Names, one: Names, other: Names, both: Names
) -> None:
    versions = [topic(allowed=allowed) for allowed in (base, one, other)]
    assert authority.merged(*versions).allowed == both
    versions[1:] = reversed(versions[1:])
    assert authority.merged(*versions).allowed == both


def test_sub_topics_of_both_hang() -> None:
    first, second = topic("/sports/a").cid, topic("/sports/b").cid
    one, other = topic(sub_topics={"a": first}), topic(sub_topics={"b": second})
    assert authority.merged(topic(), one, other).sub_topics == {"a": first, "b": second}


def test_without_a_common_version_the_narrower_right_stands() -> None:
    one, other = topic(allowed=[CAROL.peer]), topic(allowed=None)
    assert authority.merged(None, one, other).allowed == (CAROL.peer,)


def test_a_right_that_was_never_there_is_not_revoked() -> None:
    assert authority.is_revoked(CAROL.peer, FIRST, REVOKED)
    assert not authority.is_revoked(ANNA.peer, FIRST, REVOKED)
    assert not authority.is_revoked(Key("mallory").peer, FIRST, REVOKED)
