"""docs/wire.md lists every message as it is. To refresh it after a change of the messages:

PYTHONPATH=src python tests/net/test_net_codec_page.py
"""

from __future__ import annotations

import re
from pathlib import Path

from msgspec import NODEFAULT, inspect

from weft.ids import TOPIC_BYTES_MAX
from weft.net.config import Network
from weft.protocol import messages as m

DOCUMENT = Path(__file__).parents[2] / "docs" / "wire.md"
RECORDS = {
    "Contact": "contact",
    "Span": "span",
    "Announced": "announced",
    "Run": "run",
    "Statement": "statement",
    "Descriptor": "descriptor",
    "OverlayNews": "news",
    "Advert": "advert",
    "Part": "part",
    "Candidate": "candidate",
    "Neighbour": "neighbour",
    "TableEntry": "entry",
    "Head": "head",
    "Had": "had",
}
TABLE = re.compile(r"(?<=\n\n)\| tag \| message \| fields \|\n(?:\|.*\n)+")


def kind_text(kind: inspect.Type) -> str:
    if isinstance(kind, inspect.Metadata):
        return kind_text(kind.type)
    if isinstance(kind, inspect.StructType):
        return RECORDS[kind.cls.__name__]
    if isinstance(kind, inspect.ListType):
        return f"list ≤ {kind.max_length} of {kind_text(kind.item_type) or 'number'}"
    if isinstance(kind, inspect.VarTupleType):
        return f"list of {kind_text(kind.item_type)}"
    if isinstance(kind, inspect.IntType):
        low = kind.ge if kind.ge is not None else (kind.gt or 0) + 1
        high = kind.le if kind.le is not None else (kind.lt or 1 << 63) - 1
        return "" if (low, high) == (0, (1 << 63) - 1) else f"{low} … {high:,}"
    if isinstance(kind, inspect.BytesType):
        exact = kind.min_length == kind.max_length
        return f"bin {kind.max_length}" if exact else f"bin ≤ {kind.max_length}"
    if isinstance(kind, inspect.StrType):
        return "topic" if kind.max_length == TOPIC_BYTES_MAX else f"text ≤ {kind.max_length}"
    if isinstance(kind, inspect.UnionType):
        return " or ".join(kind_text(one) or "number" for one in kind.types)
    if isinstance(kind, inspect.NoneType):
        return "nil"
    assert isinstance(kind, inspect.BoolType)
    return "bool"


def field_text(field: inspect.Field) -> str:
    kind = kind_text(field.type)
    text = field.name if kind in ("", field.name) else f"{field.name}: {kind}"
    if field.required:
        return text
    if field.default is not NODEFAULT and isinstance(field.default, bool | int):
        return f"{text} = {str(field.default).lower()}"
    if field.default is None:
        return f"{text} = nil"
    if field.default == b"":
        return f"{text} = empty"
    return f"{text} = " + ("[]" if kind.startswith("list") else "zeros")


def message_table() -> str:
    union = inspect.type_info(m.AnyMessage)
    assert isinstance(union, inspect.UnionType)
    kinds = [kind for kind in union.types if isinstance(kind, inspect.StructType)]
    lines = ["| tag | message | fields |", "| --- | --- | --- |"]
    for kind in sorted(kinds, key=lambda kind: kind.tag):  # type: ignore[arg-type,return-value]
        fields = ", ".join(field_text(field) for field in kind.fields)
        lines.append(f"| {kind.tag} | {kind.cls.__name__} | {fields} |")
    return "\n".join(lines) + "\n"


def test_the_document_lists_the_messages_as_they_are() -> None:
    [table] = TABLE.findall(DOCUMENT.read_text())
    assert table == message_table(), "run this file to refresh docs/wire.md"


def test_the_document_names_the_limits_as_they_are() -> None:
    text = DOCUMENT.read_text()
    limits = Network()
    for words in (
        f"| frame body | {limits.frame_bytes_max >> 20} MiB |",
        f"| TCP connect | {limits.dial_timeout_ms // 1_000} s |",
        f"| TLS and greeting | {limits.handshake_timeout_ms // 1_000} s |",
        f"| one unfinished frame | {limits.frame_timeout_ms // 1_000} s |",
        f"| {limits.handshakes_max}, {limits.handshakes_per_ip_max} per address |",
        f"| connections | {limits.connections_max} |",
        f"| {limits.dials_max} per event loop |",
        f"| idle and not held | {limits.idle_ms // 1_000} s |",
        f"| queue to one peer, soft | {limits.queue_soft_bytes >> 20} MiB |",
        f"| queue to one peer, hard | {limits.queue_hard_bytes >> 20} MiB |",
        f"| queue to one peer, control | {limits.queue_control_bytes >> 20} MiB more |",
        f"| over the hard limit without draining | {limits.overload_ms // 1_000} s |",
        f"| {limits.subscription_events_max:,} or {limits.subscription_bytes_max >> 20} MiB |",
        f"at most {limits.queue_patience_ms // 1_000} s |",
        f"at most {limits.subscription_patience_ms // 1_000} s, then",
        f"| {limits.dial_backoff_ms // 1_000} s, doubling to "
        f"{limits.dial_backoff_ms_max // 1_000} s |",
        f"at most {limits.drain_timeout_ms // 1_000} s, `drain_timeout_ms`",
    ):
        assert words in text, words


if __name__ == "__main__":
    DOCUMENT.write_text(TABLE.sub(lambda _: message_table(), DOCUMENT.read_text()))
