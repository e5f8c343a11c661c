"""Text that other peers wrote, made fit for a terminal.

A terminal obeys what is in a text: an escape sequence may rewrite the lines above, set the title,
or have the terminal type an answer into the shell; a change of direction may show a name backwards.
So payloads, names of topics, reasons of a refusal and all else that other peers may have written
pass through `printable` before they are shown or logged.
"""

from __future__ import annotations

import re
from functools import cache

_OBEYED = (
    "[\\x00-\\x08\\x0a-\\x1f\\x7f-\\x9f"  # controls, but for the tabulator
    "\\u061c\\u200e\\u200f\\u2028-\\u202e\\u2066-\\u2069"  # ends of lines, changes of direction
    "\\ud800-\\udfff]"  # halves of letters
)


@cache
def _obeyed() -> re.Pattern[str]:
    """Made when it is needed first, since most programs show no such text."""
    return re.compile(_OBEYED)


def printable(text: str) -> str:
    r"""A text in which what a terminal would obey is written out, as `\x1b[2J`; so one line stays
    one."""
    return _obeyed().sub(lambda found: found[0].encode("unicode_escape").decode(), text)
