"""Any message that can be on the wire, built from the types themselves, over their full ranges."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st
from msgspec import inspect

from weft.net.codec import Goodbye, Hello
from weft.protocol import messages as m

_LENGTH_MAX = 5  # bounds are tested apart; long lists only slow the search down


def values(kind: inspect.Type) -> st.SearchStrategy[Any]:
    """Values of a type as msgspec describes it."""
    if isinstance(kind, inspect.Metadata):
        return values(kind.type)
    if isinstance(kind, inspect.UnionType):
        return st.one_of(*map(values, kind.types))
    if isinstance(kind, inspect.NoneType):
        return st.none()
    if isinstance(kind, inspect.StructType):
        return st.builds(kind.cls, *(values(field.type) for field in kind.fields))
    if isinstance(kind, inspect.ListType):
        most = min(_LENGTH_MAX, kind.max_length or _LENGTH_MAX)
        return st.lists(values(kind.item_type), max_size=most)
    if isinstance(kind, inspect.VarTupleType):
        least = kind.min_length or 0
        return st.lists(values(kind.item_type), min_size=least, max_size=_LENGTH_MAX).map(tuple)
    if isinstance(kind, inspect.IntType):
        low = kind.ge if kind.ge is not None else (kind.gt or 0) + 1
        high = kind.le if kind.le is not None else (kind.lt or 1 << 63) - 1
        return st.integers(low, high) | st.sampled_from((low, high))
    if isinstance(kind, inspect.BytesType):
        least = kind.min_length or 0
        return st.binary(min_size=least, max_size=min(64, kind.max_length or 64))
    if isinstance(kind, inspect.StrType):
        text = st.characters(exclude_categories=["Cs"])  # lone surrogates are no text
        return st.text(text, max_size=min(32, kind.max_length or 32))
    assert isinstance(kind, inspect.BoolType), kind
    return st.booleans()


def _members(union: Any) -> dict[type, st.SearchStrategy[Any]]:
    info = inspect.type_info(union)
    assert isinstance(info, inspect.UnionType)
    return {kind.cls: values(kind) for kind in info.types if isinstance(kind, inspect.StructType)}


MESSAGES = _members(m.AnyMessage)
any_message: st.SearchStrategy[m.AnyMessage] = st.one_of(*MESSAGES.values())
any_hello: st.SearchStrategy[Hello] = values(inspect.type_info(Hello))
any_goodbye: st.SearchStrategy[Goodbye] = values(inspect.type_info(Goodbye))
