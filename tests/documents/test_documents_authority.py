"""Who may publish in a topic."""

from __future__ import annotations

from signed_kit import ANNA, BEN, CAROL, SPORTS, Key, event, topic
from weft.documents import authority
from weft.documents.descriptor import TopicVersion
from weft.documents.refusal import Reason
from weft.ids import Topic

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
