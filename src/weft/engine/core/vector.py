"""The few machine-level operations that kernels are built from.

numba has no words for them, so each writes a little LLVM code, in LLVM's own portable vector
operations: the same text becomes AVX-512 on one machine, AVX2 or NEON on another. A row's view
has up to 20 neighbours (`LANES`), whose ids and ages are handled as whole vectors.

`shares_any_of_8` and its sibling find whether any of several ids is in a view: the exclusive or
of equal numbers is zero, so the least exclusive or of all pairs is zero exactly if two are
equal. Taking the least costs half of what comparing and gathering the outcomes does.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from llvmlite import ir  # type: ignore[import-untyped]
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

LANES = 20
"""Neighbours a row holds at most; 16 + 4 ids, and their ages within 32 bytes."""

_BIT = ir.IntType(1)
_BYTE = ir.IntType(8)
_WORD = ir.IntType(32)
_LONG = ir.IntType(64)
_AGES = ir.VectorType(_BYTE, 32)
_ID_PARTS = ((0, 16), (16, 4))  # (first lane, lanes): vectors that cover a view's ids

Codegen = Callable[..., Any]


def _operation(function: Callable[..., tuple[Any, Codegen]]) -> Any:
    """An operation for kernels; its first parameter is numba's and not passed by callers."""
    return intrinsic(function)


def _address(context: Any, builder: Any, array_type: Any, array: Any, index: Any) -> Any:
    data = context.make_array(array_type)(context, builder, array).data
    return builder.gep(data, [index])


def _call(builder: Any, name: str, result: Any, *arguments: Any) -> Any:
    kinds = [argument.type for argument in arguments]
    insert: Any = cgutils.get_or_insert_function
    function = insert(builder.module, ir.FunctionType(result, kinds), f"llvm.{name}")
    return builder.call(function, arguments)


def _splat(builder: Any, value: Any, lanes: int) -> Any:
    """A vector with the same value in every lane."""
    blank = ir.Constant(ir.VectorType(value.type, lanes), ir.Undefined)
    first = builder.insert_element(blank, value, _WORD(0))
    return builder.shuffle_vector(
        first, blank, ir.Constant(ir.VectorType(_WORD, lanes), [0] * lanes)
    )


def _lanes_as_bits(builder: Any, truths: Any, lanes: int) -> Any:
    return builder.zext(builder.bitcast(truths, ir.IntType(lanes)), _WORD)


@_operation
def prefetch(typing_context: Any, words: Any, at: Any) -> tuple[Any, Codegen]:
    """Start to fetch the cache line of `words[at]`, to be written soon; waits for nothing."""

    def codegen(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        address = _address(context, builder, signature.args[0], arguments[0], arguments[1])
        pointer = builder.bitcast(address, _BYTE.as_pointer())
        to_write, keep_near, data = _WORD(1), _WORD(3), _WORD(1)
        _call(builder, "prefetch.p0", ir.VoidType(), pointer, to_write, keep_near, data)
        return context.get_dummy_value()

    return types.void(words, types.uint64), codegen


def _first_maximum(builder: Any, ages: Any) -> Any:
    """The first lane with the largest age, among the first LANES."""
    kept = ir.Constant(_AGES, [255] * LANES + [0] * (32 - LANES))
    ages = builder.and_(ages, kept)
    largest = _call(builder, "vector.reduce.umax.v32i8", _BYTE, ages)
    at_largest = builder.icmp_unsigned("==", ages, _splat(builder, largest, 32))
    bits = _lanes_as_bits(builder, at_largest, 32)
    return builder.zext(_call(builder, "cttz.i32", _WORD, bits, _BIT(1)), _LONG)


@_operation
def oldest_lane(typing_context: Any, octets: Any, at: Any) -> tuple[Any, Codegen]:
    """The first lane of the largest of the LANES ages at `octets[at]`."""

    def codegen(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        address = _address(context, builder, signature.args[0], arguments[0], arguments[1])
        ages = builder.load(builder.bitcast(address, _AGES.as_pointer()), align=1)
        return _first_maximum(builder, ages)

    return types.int64(octets, types.uint64), codegen


@_operation
def age_lanes(typing_context: Any, octets: Any, at: Any, count: Any) -> tuple[Any, Codegen]:
    """Make the first `count` of the ages at `octets[at]` one older, up to 255; returns the lane
    of the oldest. The lanes beyond must be 0."""

    def codegen(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        address = _address(context, builder, signature.args[0], arguments[0], arguments[1])
        pointer = builder.bitcast(address, _AGES.as_pointer())
        lanes = ir.Constant(_AGES, list(range(32)))
        used = _splat(builder, builder.trunc(arguments[2], _BYTE), 32)
        one_each = builder.zext(builder.icmp_unsigned("<", lanes, used), _AGES)
        ages = builder.load(pointer, align=1)
        ages = _call(builder, "uadd.sat.v32i8", _AGES, ages, one_each)
        builder.store(ages, pointer, align=1)
        return _first_maximum(builder, ages)

    return types.int64(octets, types.uint64, types.int64), codegen


def _load_ids(builder: Any, address: Any) -> list[Any]:
    """A view's ids as vectors."""
    loaded = []
    for first, lanes in _ID_PARTS:
        pointer = builder.gep(address, [_LONG(first)])
        vector = ir.VectorType(_WORD, lanes).as_pointer()
        loaded.append(builder.load(builder.bitcast(pointer, vector), align=4))
    return loaded


@_operation
def lanes_equal(typing_context: Any, words: Any, at: Any, wanted: Any) -> tuple[Any, Codegen]:
    """A bit for each of the LANES ids at `words[at]` that equals `wanted`."""

    def codegen(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        address = _address(context, builder, signature.args[0], arguments[0], arguments[1])
        found = _WORD(0)
        for ids, (first, lanes) in zip(_load_ids(builder, address), _ID_PARTS, strict=True):
            equal = builder.icmp_unsigned("==", ids, _splat(builder, arguments[2], lanes))
            bits = builder.shl(_lanes_as_bits(builder, equal, lanes), _WORD(first))
            found = builder.or_(found, bits)
        return builder.zext(found, _LONG)

    return types.int64(words, types.uint64, types.int32), codegen


@_operation
def shares_any_of_8(
    typing_context: Any, words: Any, view: Any, other: Any, slots: Any
) -> tuple[Any, Codegen]:
    """Whether one of the ids `words[other + slot]`, for the 8 slots packed as bytes into
    `slots`, is among the LANES ids at `words[view]`."""

    def codegen(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        rows, view_at, other_at, packed = arguments
        view_address = _address(context, builder, signature.args[0], rows, view_at)
        other_address = _address(context, builder, signature.args[0], rows, other_at)
        candidates = _ids_at(builder, other_address, packed, 8)
        return _any_equal(builder, view_address, candidates)

    return types.boolean(words, types.uint64, types.uint64, types.uint64), codegen


@_operation
def shares_any_of_7_and(
    typing_context: Any, words: Any, view: Any, other: Any, slots: Any, one: Any, two: Any
) -> tuple[Any, Codegen]:
    """The same for 7 slots and two more ids."""

    def codegen(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        rows, view_at, other_at, packed, first_id, second_id = arguments
        view_address = _address(context, builder, signature.args[0], rows, view_at)
        other_address = _address(context, builder, signature.args[0], rows, other_at)
        candidates = [first_id, second_id, *_ids_at(builder, other_address, packed, 7)]
        return _any_equal(builder, view_address, candidates)

    long, word = types.uint64, types.int32
    return types.boolean(words, long, long, long, word, word), codegen


def _ids_at(builder: Any, view: Any, packed: Any, count: int) -> list[Any]:
    """The ids in the `count` slots of a view that are packed as bytes into one number."""
    ids = []
    for step in range(count):
        slot = builder.and_(builder.lshr(packed, _LONG(8 * step)), _LONG(255))
        ids.append(builder.load(builder.gep(view, [slot])))
    return ids


def _any_equal(builder: Any, view: Any, candidates: list[Any]) -> Any:
    """Whether a candidate is among the LANES ids at `view`."""
    found = _BIT(0)
    for ids, (_, lanes) in zip(_load_ids(builder, view), _ID_PARTS, strict=True):
        least = _least_difference(builder, ids, lanes, candidates)
        equal = builder.icmp_unsigned("==", least, ir.Constant(ids.type, [0] * lanes))
        bits = _lanes_as_bits(builder, equal, lanes)
        found = builder.or_(found, builder.icmp_unsigned("!=", bits, _WORD(0)))
    return found


def _least_difference(builder: Any, ids: Any, lanes: int, candidates: list[Any]) -> Any:
    least = None
    for candidate in candidates:
        differs = builder.xor(ids, _splat(builder, candidate, lanes))
        if least is None:
            least = differs
        else:
            least = _call(builder, f"umin.v{lanes}i32", differs.type, least, differs)
    return least


@_operation
def trailing_zeros(typing_context: Any, value: Any) -> tuple[Any, Codegen]:
    """How many of the lowest bits are zero; the value must not be."""

    def codegen(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return _call(builder, "cttz.i64", _LONG, arguments[0], _BIT(1))

    return types.uint64(types.uint64), codegen


@_operation
def taken_on_trust(typing_context: Any, value: Any) -> tuple[Any, Codegen]:
    """The same value, but the compiler cannot know it: it must not replace a guess that is
    checked later by the outcome of the check, for which the processor would have to wait."""

    def codegen(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        kind = ir.FunctionType(_LONG, [_LONG])
        return builder.asm(kind, "", "=r,0", [arguments[0]], False)

    return types.int64(types.int64), codegen
