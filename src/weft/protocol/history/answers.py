"""What others answer: blocks that were asked for, and pages of a stream.

Each block is checked as if nobody had asked for it. Pages are taken in event by event; an event
that may not be in the stream by itself may still be there by the word of one that follows.
"""

from __future__ import annotations

from collections.abc import Callable

from weft.documents.descriptor import Event, open_topic
from weft.documents.refusal import Reason, Refused
from weft.ids import Cid, Contact, Topic, cid_of
from weft.protocol.context import Context
from weft.protocol.history.fetch import Fetch
from weft.protocol.history.intake import Intake
from weft.protocol.history.ownership import Ownership
from weft.protocol.history.storing import Storing
from weft.protocol.history.topic_history import TopicHistory
from weft.protocol.history.versions import Versions
from weft.protocol.messages_history import BlocksReply, PageReply


class Answers:
    """Takes in what one peer was sent because it had asked."""

    def __init__(
        self,
        ctx: Context,
        topics: dict[Topic, TopicHistory],
        intake: Intake,
        fetch: Fetch,
        storing: Storing,
        versions: Versions,
        ownership: Ownership,
        give_up: Callable[[Topic, Cid, bool], None],
    ) -> None:
        """`give_up` is told of blocks that cannot be had."""
        self._ctx = ctx
        self._topics = topics
        self._intake = intake
        self._fetch = fetch
        self._storing = storing
        self._versions = versions
        self._ownership = ownership
        self._give_up = give_up

    def on_blocks_reply(self, sender: Contact, message: BlocksReply) -> None:
        request = self._fetch.on_reply(sender, message)
        if request is None:
            self._ctx.counters["history_unasked"] += 1
            return
        left = dict.fromkeys(request.cids)
        for block in message.blocks:
            cid = cid_of(block)
            if cid in left:
                del left[cid]
                self._take_in_block(request.topic, cid, block, sender)
            else:  # not asked for, or not what its name says
                self._intake.refuse(request.topic, Reason.BAD_CID, sender.peer)
        for cid in message.lacking:
            left.pop(cid, None)
        got_some = len(left) < len(request.cids) - len(message.lacking)
        self._fetch.settle(request, left if got_some else ())

    def _take_in_block(self, topic: Topic, cid: Cid, block: bytes, sender: Contact) -> None:
        if self._versions.expects(cid) or self._ownership.expects(cid):
            self._take_in_version(topic, cid, block)
            return
        state = self._topics.get(topic)
        if state is None:
            return
        event = self._intake.open_block(state, cid, block, sender.peer)
        if event is not None:
            self._intake.add(state, event, sender, 0)
        else:  # nobody can have a better one under this name
            self._fetch.forget(cid)
            self._give_up(topic, cid, False)

    def _take_in_version(self, topic: Topic, cid: Cid, block: bytes) -> None:
        """A topic version that events or a record point at."""
        self._fetch.forget(cid)
        try:
            version = open_topic(block, cid)
        except Refused as refused:
            self._intake.refuse(topic, refused.reason)
            self._give_up(topic, cid, False)
            return
        self._versions.note(version)
        self._storing.add_version(version)
        if self._ownership.expects(cid):
            self._ownership.on_block(cid, block)
        for event, source, hops in self._versions.released(cid):
            state = self._topics.get(event.topic)
            if state is not None:
                self._intake.add(state, event, source, hops)

    def on_page_reply(self, sender: Contact, message: PageReply) -> None:
        state = self._topics.get(message.topic)
        if state is None or not state.catch_up.expects(sender, message):
            self._ctx.counters["history_unasked"] += 1
            return
        if not state.catch_up.believes(message):
            return
        reader, searching = state.catch_up, state.catch_up.searching
        refused = self._ctx.counters["history_no_room"]
        useful = self._take_in_page(state, message.blocks, sender)
        no_room = self._ctx.counters["history_no_room"] > refused
        # A branch that forked off below where this reading began shows in more that lacks parents
        # than may wait; or, while looking for it, in anything that does.
        too_high = no_room or (searching and not reader.searching)
        if too_high and reader.go_lower(state.stream.lowest_waiting()):
            return
        reader.searching = False
        if reader.on_page(message, useful or no_room):
            self._end_catch_up(state, sender)

    def _take_in_page(self, state: TopicHistory, blocks: list[bytes], sender: Contact) -> bool:
        """Whether any of it belongs to the stream. An event that may not be in it by itself may
        still be there by the word of one that follows."""
        useful = False
        suspects: dict[Cid, Event] = {}
        for block in blocks:
            cid = cid_of(block)
            event = self._intake.open_block(state, cid, block, sender.peer)
            if event is None:
                continue
            if not state.stream.heads and not state.catch_up.whole:
                state.wanted_above = event.height
            if not self._intake.add(state, event, sender, 0):
                suspects[cid] = event
                continue
            useful = True
            self._vouch(state, event, suspects, sender)
            if not state.catch_up.whole:  # what came before was not asked for, or is gone
                self._intake.give_up(state, event.parents)
        return useful

    def _vouch(
        self, state: TopicHistory, event: Event, suspects: dict[Cid, Event], sender: Contact
    ) -> None:
        """Take in what an accepted event names as its parents, and so on down."""
        named = list(event.parents)
        while named and suspects:
            suspect = suspects.pop(named.pop(), None)
            if suspect is not None and self._intake.add(state, suspect, sender, 0):
                named += suspect.parents

    def _end_catch_up(self, state: TopicHistory, sender: Contact) -> None:
        """Read to the end: what waits for parents still has gaps, which are fetched."""
        self._fetch.want(state.topic, state.stream.missing(), sender)
        self._intake.take_in_early(state)
        self._ctx.counters["history_caught_up"] += 1
