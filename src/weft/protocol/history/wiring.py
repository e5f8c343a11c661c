"""Which message, fact and command goes where; and what becomes of them without a store."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from weft.ids import Contact
from weft.protocol.context import Context
from weft.protocol.history.history import History
from weft.protocol.messages_history import (
    BlocksReply,
    BlocksRequest,
    Heads,
    PageReply,
    PageRequest,
    SubTopicReply,
    SubTopicRequest,
    TopicNews,
)
from weft.protocol.seam import Answer, AskSubTopic, ChangeTopic, FollowTopic, Pruned, Stored


def handlers(ctx: Context, history: History | None) -> dict[type, Callable[[Contact, Any], None]]:
    """Who handles which message; without history all are counted and refused."""
    if history is not None:
        return {
            Heads: history.on_heads,
            BlocksRequest: history.serving.on_blocks_request,
            BlocksReply: history.answers.on_blocks_reply,
            PageRequest: history.serving.on_page_request,
            PageReply: history.answers.on_page_reply,
            TopicNews: history.ownership.on_news,
            SubTopicRequest: history.asking.on_request,
            SubTopicReply: history.asking.on_reply,
        }

    def refuse(sender: Contact, message: Any) -> None:
        ctx.counters["history_off"] += 1

    kinds = (Heads, BlocksRequest, BlocksReply, PageRequest, PageReply, TopicNews, SubTopicReply)
    return dict.fromkeys((*kinds, SubTopicRequest), refuse)


def commands(ctx: Context, history: History | None) -> dict[type, Callable[[Any], None]]:
    """Who handles which fact and command."""
    if history is not None:
        return {
            Stored: history.storing.on_stored,
            Pruned: history.on_pruned,
            ChangeTopic: history.ownership.change,
            FollowTopic: history.ownership.follow,
            AskSubTopic: history.asking.ask,
        }

    def refuse(command: Any) -> None:
        reason = "owned topics need a store: open the peer with store=…"
        ctx.answer(Answer(command.token, "refused", reason=reason))

    return {ChangeTopic: refuse, FollowTopic: refuse, AskSubTopic: refuse}
