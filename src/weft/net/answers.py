"""Who waits for the answer to which command.

Most commands are answered while they are carried out, and whoever gave one takes the answer from
here as it returns: that makes no future. Others are answered later, some of them twice: first that
the event is queued, then what became of it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TypeAlias

from weft.protocol import seam

Future: TypeAlias = "asyncio.Future[seam.Answer]"


class Answers:
    """Answers waited for, by the tokens of their commands."""

    __slots__ = ("_loop", "_prompt", "_prompt_token", "_token", "_waiting")

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._token = 0
        self._waiting: dict[int, Callable[[seam.Answer], None]] = {}
        self._prompt: seam.Answer | None = None  # to the command being carried out
        self._prompt_token = 0

    def __len__(self) -> int:
        return len(self._waiting)

    def next_token(self) -> int:
        self._token += 1
        return self._token

    def on_answer(self, answer: seam.Answer) -> None:
        if answer.token == self._prompt_token:
            self._prompt = answer
            self._prompt_token = 0
            return
        tell = self._waiting.get(answer.token)
        if tell is not None:
            if answer.outcome != "queued":  # a final answer follows that one
                del self._waiting[answer.token]
            tell(answer)

    # --- answers that come at once --------------------------------------------------------------

    def begin(self, token: int) -> None:
        """This command is about to be carried out."""
        self._prompt = None
        self._prompt_token = token

    def end(self) -> seam.Answer | None:
        """It has been: its answer, if there is one."""
        self._prompt_token = 0
        return self._prompt

    # --- answers that come later ----------------------------------------------------------------

    def tell(self, token: int, then: Callable[[seam.Answer], None]) -> None:
        self._waiting[token] = then

    def forget(self, token: int) -> None:
        self._waiting.pop(token, None)

    def expect(self, token: int) -> Future:
        future: Future = self._loop.create_future()

        def tell(answer: seam.Answer) -> None:
            if not future.done():
                future.set_result(answer)

        self._waiting[token] = tell
        return future

    def expect_two(self, token: int) -> tuple[Future, Future]:
        """For the answer to a command, and for the one that follows if that was "queued"."""
        first: Future = self._loop.create_future()
        final: Future = self._loop.create_future()

        def tell(answer: seam.Answer) -> None:
            future = final if first.done() else first
            if not future.done():
                future.set_result(answer)

        self._waiting[token] = tell
        return first, final

    def close(self) -> None:
        """No more answers will come."""
        waiting, self._waiting = self._waiting, {}
        for token, tell in waiting.items():
            tell(seam.Answer(token, "dropped"))
