"""Scamp over arrays: the views that one topic's members come to, by the rules of
`weft.rules.scamp`, as a choice of what StaN's rounds begin with.

Members subscribe one after the other in an order drawn for the topic, each through a contact drawn
from those that are there. Then some of them leave and come again, and every member's lease may end
some times. All copies of a subscription have arrived before the next one begins.

Leases last for times of their own, so they end in an order that has nothing to do with that of
joining (here by the members' numbers). Measured: where they ended in the order of joining, the
oldest first, views grew to 1.3 of (c+1)·ln n with the first lease, since the oldest have the
largest views and most of their contacts are as old; in another order they are 1.0 of it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from weft.engine.core.arrays import Ids
from weft.engine.core.draws import absorb, below
from weft.engine.core.jit import Bits, compiled, i64, part, shared, u64
from weft.engine.stan.views import place_in
from weft.rules import scamp as rules
from weft.rules.scamp import (
    copies,
    first_slot,
    is_given_up,
    is_isolated,
    is_replaced,
    one_in,
    replacement,
)

shared(copies, first_slot, is_given_up, is_isolated, is_replaced, one_in, replacement)

ORDER, CONTACT, COPIES = range(3)
"""What a draw is for: part of its key, beside the number of the operation."""


@dataclass(frozen=True)
class Scamp:
    """How a topic's members came together."""

    extra: int = rules.EXTRA  # c
    turnover: float = 0.1  # guess: the share that leaves and comes again
    leases: int = 0  # guess: how many leases of every member have ended

    def __post_init__(self) -> None:
        if self.extra < 0 or self.leases < 0 or not 0 <= self.turnover <= 1:
            raise ValueError("extra and leases are at least 0, turnover is a share")


class Group(NamedTuple):
    """The views of one topic while they form; members are numbered within the topic."""

    views: Ids  # members × room
    sizes: Ids
    holders: Ids  # the in-views: members × room for them
    held: Ids  # their sizes
    extra: int
    key: Bits


@part
def can_keep(group: Group, at: int, member: int) -> bool:
    """Whether a view lacks a member and has room for it."""
    return (
        at != member
        and group.sizes[at] < group.views.shape[1]
        and group.held[member] < group.holders.shape[1]
        and place_in(group.views[at], i64(group.sizes[at]), member) < 0
    )


@part
def keep(group: Group, at: int, member: int) -> None:
    group.views[at, group.sizes[at]] = member
    group.sizes[at] += 1
    group.holders[member, group.held[member]] = at
    group.held[member] += 1


@part
def take_out(some: Ids, count: int, member: int) -> None:
    """Remove a member from the first `count`; those after it move up."""
    for place in range(place_in(some, count, member), count - 1):
        some[place] = some[place + 1]


@part
def drop(group: Group, at: int, member: int) -> None:
    """A view loses a member that it holds."""
    take_out(group.views[at], i64(group.sizes[at]), member)
    group.sizes[at] -= 1
    take_out(group.holders[member], i64(group.held[member]), at)
    group.held[member] -= 1


@compiled
def send_copies(group: Group, member: int, contact: int, extra: int, key: Bits) -> None:
    """The contact sends a subscription on, and all copies of it travel until they are kept."""
    size = i64(group.sizes[contact])
    if size == 0:
        keep(group, contact, member)
        return
    for copy in range(copies(size, extra)):
        path = absorb(key, copy)
        at = i64(group.views[contact, first_slot(copy, size, below(absorb(path, 0), size))])
        hops = 1
        while not is_given_up(hops):
            bits = absorb(path, hops)
            view = i64(group.sizes[at])
            if can_keep(group, at, member) and below(bits, one_in(view)) == 0:
                keep(group, at, member)
                break
            if view == 0:
                break
            at = i64(group.views[at, below(absorb(bits, 0), view)])
            hops += 1


@part
def subscribe(group: Group, member: int, contact: int, key: Bits) -> None:
    if can_keep(group, member, contact):
        keep(group, member, contact)
    send_copies(group, member, contact, group.extra, absorb(key, COPIES))


@part
def another(member: int, count: int, key: Bits) -> int:
    """A member drawn from all others."""
    drawn = below(absorb(key, CONTACT), count - 1)
    return drawn + i64(drawn >= member)


@compiled
def rescue(group: Group, holders: Ids, key: Bits) -> None:
    """Former holders whose view is empty now subscribe again."""
    for place in range(len(holders)):
        at = i64(holders[place])
        if is_isolated(i64(group.sizes[at])):
            own = absorb(key, place)
            subscribe(group, at, another(at, len(group.sizes), own), own)


@compiled
def leave(group: Group, member: int) -> Ids:
    """A member unsubscribes: most of its holders take members of its view in its place. Returns
    those that held it."""
    holders = group.holders[member, : group.held[member]].copy()
    view = group.views[member, : group.sizes[member]].copy()
    for place in range(len(view)):
        drop(group, member, i64(view[place]))
    for place in range(len(holders)):
        at = i64(holders[place])
        drop(group, at, member)
        if len(view) > 0 and is_replaced(place, len(holders), group.extra):
            other = i64(view[replacement(place, len(view))])
            if can_keep(group, at, other):
                keep(group, at, other)
    return holders


@compiled
def renew(group: Group, member: int, key: Bits) -> None:
    """A member's lease ends, and it subscribes again through one of its view, which it keeps."""
    holders = group.holders[member, : group.held[member]].copy()
    for place in range(len(holders)):
        drop(group, i64(holders[place]), member)
    contact = i64(group.views[member, below(absorb(key, CONTACT), i64(group.sizes[member]))])
    send_copies(group, member, contact, 0, absorb(key, COPIES))
    rescue(group, holders, absorb(key, ORDER))


@compiled
def _come_together(group: Group, leavers: int, leases: int) -> None:
    count = len(group.sizes)
    order = np.arange(count)
    for place in range(count - 1, 0, -1):
        other = below(absorb(absorb(group.key, ORDER), place), place + 1)
        order[place], order[other] = order[other], order[place]
    turn = 0
    for place in range(1, count):
        key = absorb(absorb(group.key, COPIES), turn)
        turn += 1
        contact = i64(order[below(absorb(key, CONTACT), place)])
        subscribe(group, i64(order[place]), contact, key)
    for place in range(leavers):
        key = absorb(absorb(group.key, COPIES), turn)
        turn += 1
        member = i64(order[place])
        holders = leave(group, member)
        subscribe(group, member, another(member, count, key), key)
        rescue(group, holders, absorb(key, ORDER))
    for _ in range(leases):
        for place in range(count):
            key = absorb(absorb(group.key, COPIES), turn)
            turn += 1
            renew(group, place, key)


def views_of(members: int, scamp: Scamp, key: Bits) -> tuple[Ids, Ids]:
    """The view sizes of a topic's members and, member by member, their neighbours as places among
    the members."""
    room = rules.room(members, scamp.extra)
    group = Group(
        np.empty((members, room), np.int32),
        np.zeros(members, np.int32),
        np.empty((members, 2 * room + 16), np.int32),
        np.zeros(members, np.int32),
        scamp.extra,
        u64(key),
    )
    if members > 1:
        _come_together(group, round(scamp.turnover * members) if members > 2 else 0, scamp.leases)
    used = np.arange(room) < group.sizes[:, None]
    return group.sizes, np.asarray(group.views[used], np.int32)
