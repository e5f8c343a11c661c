"""Why a block, an event or a record is not accepted.

Each kind of fault has a reason of its own, so that a peer can count, trace and tell what it
refuses. A reason is one word and stays the same for ever; the text beside it is for people.
"""

from __future__ import annotations

from enum import StrEnum

from weft.errors import WeftError


class Reason(StrEnum):
    """What is wrong; the value is the name under which it is counted."""

    TOO_LARGE = "too_large"  # more bytes than a block or a record may have
    BAD_CID = "bad_cid"  # the bytes do not hash to the name they came under
    NOT_CANONICAL = "not_canonical"  # not the one dag-cbor encoding of what it says
    BAD_SHAPE = "bad_shape"  # a field is missing, too many, of a wrong type or out of bounds
    UNKNOWN_KIND = "unknown_kind"  # neither a topic nor an event, or a key of no known kind
    BAD_SIGNATURE = "bad_signature"
    TOO_MANY_PARENTS = "too_many_parents"
    WRONG_HEIGHT = "wrong_height"  # not one more than the highest parent
    WRONG_TOPIC = "wrong_topic"  # belongs to another topic than it should
    UNKNOWN_TOPIC = "unknown_topic"  # the topic version it links to is not to be had
    NOT_ALLOWED = "not_allowed"  # the topic's owners do not let this publisher publish
    NOT_OWNER = "not_owner"  # a new version of a topic by a peer that does not own it
    OUTSIDE_PARENT = "outside_parent"  # a sub-topic that does not extend its parent's path
    OUTSIDE_HIERARCHY = "outside_hierarchy"  # says it was published where it cannot come from
    WRONG_NAME = "wrong_name"  # a record under a name that is not its own
    NOT_HOLDER = "not_holder"  # a record signed by a key that does not hold the topic
    OLDER_SEQUENCE = "older_sequence"  # a record older than the one at hand
    EXPIRED = "expired"
    LASTS_TOO_LONG = "lasts_too_long"  # a record that would be valid longer than any may
    PRUNED = "pruned"  # an event older than the history that is kept
    OVER_QUOTA = "over_quota"  # its publisher has as much stored in the topic as one may
    NO_ROOM = "no_room"  # too many events wait for their parents


class Refused(WeftError):
    """A block, an event or a record is refused: `reason` is for counting, the text for people."""

    def __init__(self, reason: Reason, text: str) -> None:
        super().__init__(text)
        self.reason = reason
