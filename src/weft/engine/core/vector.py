"""The few machine-level operations that kernels are built from.

numba has no functions for them, so each writes a little LLVM code, in LLVM's portable vector
operations: the same text becomes AVX-512 on one machine, AVX2 or NEON on another. A row's view
has up to 20 neighbours (`LANES`), whose ids and ages are handled as whole vectors.

`shares_any_of_8` and its sibling find whether any of several ids is in a view: the exclusive or
of equal numbers is zero, so the least exclusive or of all pairs is zero exactly if two are
equal. Taking the least costs half of what comparing and gathering the outcomes does.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from inspect import Parameter
from inspect import Signature as Parameters
from typing import Protocol, TypeAlias

from llvmlite import ir
from numba import types
from numba.core.typing.context import Context
from numba.core.typing.templates import Signature
from numba.extending import intrinsic

LANES = 20
"""Neighbours a row holds at most; 16 + 4 ids, and their ages within 32 bytes."""

_BIT = ir.IntType(1)
_BYTE = ir.IntType(8)
_WORD = ir.IntType(32)
_LONG = ir.IntType(64)
_AGES = ir.VectorType(_BYTE, 32)
_ID_PARTS = ((0, 16), (16, 4))  # (first lane, lanes): vectors that cover a view's ids

Builder: TypeAlias = ir.IRBuilder
Value: TypeAlias = ir.Value
Operation: TypeAlias = Callable[..., int]


class _Target(Protocol):
    """What numba says of the machine that code is written for."""

    def make_array(self, kind: types.Type) -> Callable[[_Target, Builder, Value], Value]: ...

    def get_dummy_value(self) -> Value: ...


_Codegen: TypeAlias = Callable[[_Target, Builder, Signature, Sequence[Value]], Value]


def _operation(
    result: types.Type, indices: int, *more: types.Type
) -> Callable[[Callable[..., Value]], Operation]:
    """An operation for kernels, from a function that writes its LLVM code.

    Kernels pass an array, so many indices into it and values of the further types; without
    indices there is no array. The function that writes the code gets the builder, an address
    for each index, and the values.
    """

    def of(code: Callable[..., Value]) -> Operation:
        def typed(typing_context: Context, *given: types.Type) -> tuple[Signature, _Codegen]:
            array = given[:1] if indices else ()
            places = [types.uint64] * indices

            def codegen(
                context: _Target, builder: Builder, signature: Signature, values: Sequence[Value]
            ) -> Value:
                if indices:
                    data = context.make_array(signature.args[0])(context, builder, values[0]).data
                    at = [builder.gep(data, [index]) for index in values[1 : 1 + indices]]
                    values = [*at, *values[1 + indices :]]
                written = code(builder, *values)
                return context.get_dummy_value() if result is types.void else written

            return result(*array, *places, *more), codegen

        names = [f"_{place}" for place in range(1 + bool(indices) + indices + len(more))]
        positional = [Parameter(name, Parameter.POSITIONAL_OR_KEYWORD) for name in names]
        typed.__name__ = code.__name__
        vars(typed)["__signature__"] = Parameters(positional)
        operation: Operation = intrinsic(typed)
        return operation

    return of


def _call(builder: Builder, name: str, result: ir.Type, *arguments: Value) -> Value:
    kinds = [argument.type for argument in arguments]
    kind = ir.FunctionType(result, kinds)
    function = builder.module.declare_intrinsic(f"llvm.{name}", (), kind)
    return builder.call(function, arguments)


def _splat(builder: Builder, value: Value, lanes: int) -> Value:
    """A vector with the same value in every lane."""
    blank = ir.Constant(ir.VectorType(value.type, lanes), ir.Undefined)
    first = builder.insert_element(blank, value, _WORD(0))
    return builder.shuffle_vector(
        first, blank, ir.Constant(ir.VectorType(_WORD, lanes), [0] * lanes)
    )


def _lanes_as_bits(builder: Builder, truths: Value, lanes: int) -> Value:
    return builder.zext(builder.bitcast(truths, ir.IntType(lanes)), _WORD)


@_operation(types.void, 1)
def prefetch(builder: Builder, address: Value) -> None:
    """Start to fetch the cache line of `words[at]`, to be written soon; waits for nothing."""
    pointer = builder.bitcast(address, _BYTE.as_pointer())
    to_write, keep_near, data = _WORD(1), _WORD(3), _WORD(1)
    _call(builder, "prefetch.p0", ir.VoidType(), pointer, to_write, keep_near, data)


def _first_maximum(builder: Builder, ages: Value) -> Value:
    """The first lane with the largest age, among the first LANES."""
    kept = ir.Constant(_AGES, [255] * LANES + [0] * (32 - LANES))
    ages = builder.and_(ages, kept)
    largest = _call(builder, "vector.reduce.umax.v32i8", _BYTE, ages)
    at_largest = builder.icmp_unsigned("==", ages, _splat(builder, largest, 32))
    bits = _lanes_as_bits(builder, at_largest, 32)
    return builder.zext(_call(builder, "cttz.i32", _WORD, bits, _BIT(1)), _LONG)


@_operation(types.int64, 1)
def oldest_lane(builder: Builder, address: Value) -> Value:
    """The first lane of the largest of the LANES ages at `octets[at]`."""
    ages = builder.load(builder.bitcast(address, _AGES.as_pointer()), align=1)
    return _first_maximum(builder, ages)


@_operation(types.int64, 1, types.int64)
def age_lanes(builder: Builder, address: Value, count: Value) -> Value:
    """Make the first `count` of the ages at `octets[at]` one older, up to 255; returns the lane
    of the oldest. The lanes beyond must be 0."""
    pointer = builder.bitcast(address, _AGES.as_pointer())
    lanes = ir.Constant(_AGES, list(range(32)))
    used = _splat(builder, builder.trunc(count, _BYTE), 32)
    one_each = builder.zext(builder.icmp_unsigned("<", lanes, used), _AGES)
    ages = builder.load(pointer, align=1)
    ages = _call(builder, "uadd.sat.v32i8", _AGES, ages, one_each)
    builder.store(ages, pointer, align=1)
    return _first_maximum(builder, ages)


def _load_ids(builder: Builder, address: Value) -> list[Value]:
    """A view's ids as vectors."""
    loaded = []
    for first, lanes in _ID_PARTS:
        pointer = builder.gep(address, [_LONG(first)])
        vector = ir.VectorType(_WORD, lanes).as_pointer()
        loaded.append(builder.load(builder.bitcast(pointer, vector), align=4))
    return loaded


@_operation(types.int64, 1, types.int32)
def lanes_equal(builder: Builder, view: Value, wanted: Value) -> Value:
    """A bit for each of the LANES ids at `words[at]` that equals `wanted`."""
    found = _WORD(0)
    for ids, (first, lanes) in zip(_load_ids(builder, view), _ID_PARTS, strict=True):
        equal = builder.icmp_unsigned("==", ids, _splat(builder, wanted, lanes))
        bits = builder.shl(_lanes_as_bits(builder, equal, lanes), _WORD(first))
        found = builder.or_(found, bits)
    return builder.zext(found, _LONG)


@_operation(types.boolean, 2, types.uint64)
def shares_any_of_8(builder: Builder, view: Value, other: Value, slots: Value) -> Value:
    """Whether one of the ids `words[other + slot]`, for the 8 slots packed as bytes into
    `slots`, is among the LANES ids at `words[view]`."""
    return _any_equal(builder, view, _ids_at(builder, other, slots, 8))


@_operation(types.boolean, 2, types.uint64, types.int32, types.int32)
def shares_any_of_7_and(
    builder: Builder, view: Value, other: Value, slots: Value, one: Value, two: Value
) -> Value:
    """Whether one of the ids in 7 slots, or `one` or `two`, is among the ids at `words[view]`."""
    return _any_equal(builder, view, [one, two, *_ids_at(builder, other, slots, 7)])


def _ids_at(builder: Builder, view: Value, packed: Value, count: int) -> list[Value]:
    """The ids in the `count` slots of a view that are packed as bytes into one number."""
    ids = []
    for step in range(count):
        slot = builder.and_(builder.lshr(packed, _LONG(8 * step)), _LONG(255))
        ids.append(builder.load(builder.gep(view, [slot])))
    return ids


def _any_equal(builder: Builder, view: Value, candidates: list[Value]) -> Value:
    """Whether a candidate is among the LANES ids at `view`."""
    found = _BIT(0)
    for ids, (_, lanes) in zip(_load_ids(builder, view), _ID_PARTS, strict=True):
        least = _least_difference(builder, ids, lanes, candidates)
        equal = builder.icmp_unsigned("==", least, ir.Constant(ids.type, [0] * lanes))
        bits = _lanes_as_bits(builder, equal, lanes)
        found = builder.or_(found, builder.icmp_unsigned("!=", bits, _WORD(0)))
    return found


def _least_difference(builder: Builder, ids: Value, lanes: int, candidates: list[Value]) -> Value:
    least = None
    for candidate in candidates:
        differs = builder.xor(ids, _splat(builder, candidate, lanes))
        if least is None:
            least = differs
        else:
            least = _call(builder, f"umin.v{lanes}i32", differs.type, least, differs)
    return least


@_operation(types.uint64, 0, types.uint64)
def trailing_zeros(builder: Builder, value: Value) -> Value:
    """How many of the lowest bits are zero; the value must not be."""
    return _call(builder, "cttz.i64", _LONG, value, _BIT(1))


@_operation(types.int64, 0, types.int64)
def taken_on_trust(builder: Builder, value: Value) -> Value:
    """The same value, hidden from the compiler. Else the compiler would replace a guess by the
    outcome of the later check that it is right, and the processor would wait for that outcome."""
    kind = ir.FunctionType(_LONG, [_LONG])
    return builder.asm(kind, "", "=r,0", [value], False)
