"""What commands print: columns for a terminal, notifications for people or for programs.

Much of it comes from other peers: payloads, names of topics, reasons of refusals. A terminal obeys
escape sequences in such text (they may rewrite lines, set the title, or have the terminal type), so
all text for people goes through `printable`. Payloads are printed unchanged if a program reads
them, which is the case if standard output is no terminal, and if the user asks for it (`--raw`).
"""

from __future__ import annotations

import argparse
import base64
import json
import sys
from collections.abc import Sequence
from typing import Any, TypeAlias

from weft.terminal import printable

Fields: TypeAlias = dict[str, Any]
"""A JSON object."""


def say(text: str) -> None:
    """Tell the user something beside the results, on stderr."""
    print(f"weft: {text}", file=sys.stderr)


def say_subscribed(topic: str, outcome: object) -> None:
    """Tell the user that a topic was entered, without the protocol's word for the outcome."""
    alone = " (no other member was found so far)" if outcome == "instantiated" else ""
    print(f"weft: subscribed to {printable(topic)}{alone}", file=sys.stderr, flush=True)


def raw_option(parser: argparse.ArgumentParser) -> None:
    """The option `--raw`, for commands that print payloads."""
    text = "print payloads unchanged, also to a terminal, which obeys control codes in them"
    parser.add_argument("--raw", action="store_true", help=text)


def rows_in_words(rows: Sequence[tuple[str, str]], width: int) -> str:
    """Names and values, a line each."""
    return "\n".join(f"{name:<{width}} {printable(value)}" for name, value in rows)


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Left-aligned columns under their names."""
    rows = [[printable(cell) for cell in row] for row in rows]
    widths = [max(map(len, column)) for column in zip(head, *rows, strict=True)]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in (head, *rows)
    )


def show(note: Fields, *, as_json: bool, with_topic: bool, raw: bool) -> None:
    """One line: the payload (after the topic it was published in, if there are several), or JSON,
    in which everything but plain letters is written out."""
    payload: bytes = note["payload"]
    if as_json:
        fields = {name: value for name, value in note.items() if name != "payload"}
        try:
            fields["payload"] = payload.decode()
        except UnicodeDecodeError:
            fields["payload_base64"] = base64.b64encode(payload).decode()
        line = json.dumps(fields).encode()
    else:
        line = payload
        if not raw and sys.stdout.isatty():
            line = printable(payload.decode(errors="backslashreplace")).encode()
        if with_topic:
            line = f"{printable(note['published_in'])}\t".encode() + line
    sys.stdout.flush()
    sys.stdout.buffer.write(line + b"\n")
    sys.stdout.buffer.flush()
