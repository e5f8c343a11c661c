"""The rounds of StaN (Algorithm 2) in one topic's overlay, compiled.

A member's view is a row of neighbours, numbered within the topic, beside a row of their weights.
The adopted come first, then the others; each part is sorted by weight, lowest first. A candidate
heavier than the last of a row is turned down by one comparison, which is what happens to nearly
all of them: a walk costs little more than one hash per candidate.

Members act one after the other, in an order drawn for each topic and round, and see what those
before them have done (as in a cycle-driven simulator). Every draw is keyed by topic, member and
round, so an overlay comes out the same in whatever company it is computed.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from weft.engine.draws import Bits, absorb, below
from weft.engine.jit import compiled, i64, part, u64
from weft.engine.layout import Array
from weft.engine.order import domain_bits, next_in_order
from weft.engine.stan_weights import Interests, Keys, Scale, own_key, scale_of, weigh


class Options(NamedTuple):
    """How a round goes; chances are out of 2³²."""

    ttl: int
    rounds: int
    loss: int  # that one message is lost
    churn: int  # that a node leaves in a round, and another takes its place
    overheard: bool  # whether those a walk passes read it for candidates
    patience: int  # quiet rounds before a member asks to be adopted; 0: it never does
    far: int  # steps that a walk must have taken to count as heard
    adopted_part: int
    longest: int  # the walk's period backs off up to so many rounds; 1: not at all


class Overlay(NamedTuple):
    """The state of one topic's overlay while it is computed."""

    members: Array  # int32, nodes
    numbers: Array  # uint64, what stands for each in weights
    ids: Array  # int32, members × view
    weights: Array  # uint64, beside
    adopted: Array  # int32, how many of a view are
    quiet: Array  # int32, rounds since a walk came by
    heard: Array  # uint8, whether one came by in this round
    period: Array  # int32, rounds between two walks
    due: Array  # int32, the round of the next
    seen: Array  # int64, the last walk that has each member in its set
    found: Array  # int32, the set of the present walk


@part
def slot_in(overlay: Overlay, row: int, member: int) -> int:
    """Where a view holds a member, or −1."""
    view = overlay.ids[row]
    for slot in range(len(view)):
        if view[slot] == member:
            return slot
    return -1


@part
def lighter(overlay: Overlay, weight: Bits, member: int, row: int, slot: int) -> bool:
    """Whether a candidate comes before what a slot holds."""
    other = overlay.weights[row, slot]
    if weight != other:
        return bool(weight < other)
    return bool(overlay.numbers[member] < overlay.numbers[overlay.ids[row, slot]])


@part
def put(overlay: Overlay, row: int, member: int, weight: Bits, first: int, last: int) -> None:
    """Sort a member into slots first … last of a view; what was in the last is gone."""
    slot = last
    while slot > first and lighter(overlay, weight, member, row, slot - 1):
        overlay.ids[row, slot] = overlay.ids[row, slot - 1]
        overlay.weights[row, slot] = overlay.weights[row, slot - 1]
        slot -= 1
    overlay.ids[row, slot] = member
    overlay.weights[row, slot] = weight


@part
def offer(overlay: Overlay, row: int, member: int, weight: Bits) -> bool:
    """Take a candidate into a view if it is light enough; returns whether the view changed."""
    last = overlay.ids.shape[1] - 1
    first = i64(overlay.adopted[row])
    if first > last or not lighter(overlay, weight, member, row, last):
        return False
    if slot_in(overlay, row, member) >= 0:
        return False
    put(overlay, row, member, weight, first, last)
    return True


@part
def adopt(overlay: Overlay, row: int, member: int, weight: Bits, part_of_view: int) -> bool:
    """Take a lonely member into a view, in the place of the heaviest that is not adopted."""
    view = overlay.ids.shape[1]
    have = i64(overlay.adopted[row])
    if have >= max(1, view // part_of_view):
        return False
    for slot in range(view - 1, have, -1):
        overlay.ids[row, slot] = overlay.ids[row, slot - 1]
        overlay.weights[row, slot] = overlay.weights[row, slot - 1]
    put(overlay, row, member, weight, 0, have)
    overlay.adopted[row] += 1
    return True


@compiled
def fill(
    overlay: Overlay, row: int, have: int, key: Any, interests: Interests, scale: Scale
) -> None:
    """Fill a view that holds `have` with random others, all sets equally likely, and sort it."""
    count, view = len(overlay.members), overlay.ids.shape[1]
    own = own_key(overlay.numbers[row])
    attempt = 0
    while have < view:
        other = below(absorb(key, attempt), count)
        attempt += 1
        known = other == row
        for slot in range(have):
            known |= overlay.ids[row, slot] == other
        if not known:
            weight = weigh(own, overlay.numbers, row, other, interests, scale)
            put(overlay, row, other, weight, min(have, i64(overlay.adopted[row])), have)
            have += 1


@part
def collect(overlay: Overlay, member: int, walk: int, count: int) -> int:
    """Add a member to the walk's set, once; returns how many that has."""
    if overlay.seen[member] != walk:
        overlay.seen[member] = walk
        overlay.found[count] = member
        count += 1
    return count


@compiled
def offer_all(overlay: Overlay, row: int, count: int, interests: Interests, scale: Scale) -> bool:
    """Offer the walk's set to a view; returns whether that changed."""
    own = own_key(overlay.numbers[row])
    changed = False
    for at in range(count):
        member = i64(overlay.found[at])
        if member != row:
            weight = weigh(own, overlay.numbers, row, member, interests, scale)
            changed |= offer(overlay, row, member, weight)
    return changed


@part
def lost(key: Bits, message: int, chance: int) -> bool:
    return chance > 0 and i64(absorb(key, message) >> u64(32)) < chance


@part
def walk(
    overlay: Overlay,
    row: int,
    number: int,
    keys: tuple[Bits, Bits],
    options: Options,
    interests: Interests,
    scale: Scale,
) -> bool:
    """One member's walk and what it makes of the reply; returns whether its view changed."""
    step_key, loss_key = keys
    view = overlay.ids.shape[1]
    at = row
    count = 0
    for step in range(options.ttl + 1):
        at = i64(overlay.ids[at, below(absorb(step_key, step), view)])
        if lost(loss_key, step, options.loss):
            return False
        if at != row:
            if step >= options.far:
                overlay.heard[at] = 1
            if options.overheard:
                own = own_key(overlay.numbers[at])
                weight = weigh(own, overlay.numbers, at, row, interests, scale)
                offer(overlay, at, row, weight)
                offer_all(overlay, at, count, interests, scale)
        count = collect(overlay, at, number, count)
        for slot in range(view):
            count = collect(overlay, i64(overlay.ids[at, slot]), number, count)
    if lost(loss_key, options.ttl + 1, options.loss):
        return False
    return offer_all(overlay, row, count, interests, scale)


@compiled
def act(
    overlay: Overlay,
    tick: int,
    order: Array,
    keys: Keys,
    options: Options,
    interests: Interests,
    scale: Scale,
) -> int:
    """Every member whose turn it is walks, in random order; returns how many did."""
    count = len(overlay.members)
    positions = i64(1) << domain_bits(count)
    next_in_order(order, 0, 0, positions, count, absorb(keys.order, tick))
    walks = 0
    for turn in range(count):
        row = i64(order[turn])
        if overlay.due[row] > tick:
            continue
        walks += 1
        node = i64(overlay.members[row])
        step_key = absorb(absorb(keys.step, node), tick)
        loss_key = absorb(absorb(keys.loss, node), tick)
        number = tick * count + turn
        both = (step_key, loss_key)
        changed = walk(overlay, row, number, both, options, interests, scale)
        longer = min(options.longest, 2 * i64(overlay.period[row]))
        overlay.period[row] = 1 if changed else longer
        overlay.due[row] = tick + overlay.period[row]
    return walks


@compiled
def ask_for_a_link(
    overlay: Overlay,
    row: int,
    key: Bits,
    options: Options,
    interests: Interests,
    scale: Scale,
) -> bool:
    """A lonely member asks its neighbours, the lightest first, until one that can be found has it
    in its view or a message is lost; returns whether one adopted it."""
    for slot in range(overlay.ids.shape[1]):
        asked = i64(overlay.ids[row, slot])
        if lost(key, slot, options.loss):
            return False
        if overlay.heard[asked]:
            if slot_in(overlay, asked, row) >= 0:
                return False
            own = own_key(overlay.numbers[asked])
            weight = weigh(own, overlay.numbers, asked, row, interests, scale)
            if adopt(overlay, asked, row, weight, options.adopted_part):
                return True
    return False


@compiled
def comfort(
    overlay: Overlay, tick: int, keys: Keys, options: Options, interests: Interests, scale: Scale
) -> int:
    """Members that no walk from afar has passed ask to be adopted; returns how many were."""
    done = 0
    for row in range(len(overlay.members)):
        overlay.quiet[row] = 0 if overlay.heard[row] else overlay.quiet[row] + 1
        if overlay.quiet[row] >= options.patience:
            key = absorb(absorb(keys.adopt, i64(overlay.members[row])), tick)
            done += ask_for_a_link(overlay, row, key, options, interests, scale)
    overlay.heard[:] = 0
    return done


@part
def leaves(node: int, tick: int, keys: Keys, chance: int) -> bool:
    """Whether a node is replaced at the start of this round: in all of its topics at once."""
    return i64(absorb(absorb(keys.churn, node), tick) >> u64(32)) < chance


@compiled
def replace_leavers(
    overlay: Overlay,
    tick: int,
    generations: Array,
    keys: Keys,
    options: Options,
    interests: Interests,
    scale: Scale,
) -> None:
    """Nodes leave, and others take their places with ids and views of their own. Whoever had a
    leaver in its view has noticed by the next round and been given a random member instead."""
    count, view = len(overlay.members), overlay.ids.shape[1]
    for row in range(count):
        node = i64(overlay.members[row])
        gone = leaves(node, tick, keys, options.churn)
        overlay.heard[row] = gone
        if gone:
            generations[row] += 1
            overlay.numbers[row] = absorb(absorb(keys.identity, node), i64(generations[row]))
    for row in range(count):
        have = adopted = 0
        for slot in range(view):
            other = i64(overlay.ids[row, slot])
            if overlay.heard[row] == 0 and overlay.heard[other] == 0:
                overlay.ids[row, have] = other
                overlay.weights[row, have] = overlay.weights[row, slot]
                have += 1
                adopted += slot < overlay.adopted[row]
        if have == view:
            continue
        overlay.adopted[row] = adopted
        key = absorb(absorb(keys.refill, i64(overlay.members[row])), tick)
        fill(overlay, row, have, key, interests, scale)
        overlay.period[row], overlay.due[row], overlay.quiet[row] = 1, tick, 0
    overlay.heard[:] = 0


@part
def new_overlay(members: Array, view: int, ttl: int) -> Overlay:
    count = len(members)
    return Overlay(
        members,
        np.empty(count, np.uint64),
        np.empty((count, view), np.int32),
        np.empty((count, view), np.uint64),
        np.zeros(count, np.int32),
        np.zeros(count, np.int32),
        np.zeros(count, np.uint8),
        np.ones(count, np.int32),
        np.ones(count, np.int32),
        np.full(count, -1, np.int64),
        np.empty(min(count, (ttl + 1) * (view + 1)), np.int32),
    )


@part
def snapshot(overlay: Overlay, links: Array, start: int) -> None:
    """Write down who is linked to whom, as nodes."""
    view = overlay.ids.shape[1]
    for row in range(len(overlay.members)):
        for slot in range(view):
            links[start + row * view + slot] = overlay.members[overlay.ids[row, slot]]


@compiled
def run_topic(
    members: Array,
    view: int,
    keys: Keys,
    options: Options,
    interests: Interests,
    wanted: Array,
    links: Array,
    start: int,
) -> tuple[int, int]:
    """All rounds of one topic. `wanted[r]` is the row of `links` for the views after r rounds, or
    −1; `start` is where the topic's links begin. Returns walks made and members adopted."""
    overlay = new_overlay(members, view, options.ttl)
    scale = scale_of(members, interests)
    count = len(members)
    for row in range(count):
        overlay.numbers[row] = absorb(absorb(keys.identity, i64(members[row])), 0)
    for row in range(count):
        fill(overlay, row, 0, absorb(keys.first, i64(members[row])), interests, scale)
    if wanted[0] >= 0:
        snapshot(overlay, links[wanted[0]], start)
    order = np.empty(count + 1, np.int64)
    generations = np.zeros(count, np.int32)
    walks = adopted = 0
    for tick in range(1, options.rounds + 1):
        if options.churn > 0:
            replace_leavers(overlay, tick, generations, keys, options, interests, scale)
        walks += act(overlay, tick, order, keys, options, interests, scale)
        if options.patience > 0:
            adopted += comfort(overlay, tick, keys, options, interests, scale)
        if wanted[tick] >= 0:
            snapshot(overlay, links[wanted[tick]], start)
    return walks, adopted


@compiled
def ideal_topic(
    members: Array, view: int, keys: Keys, interests: Interests, links: Array, start: int
) -> None:
    """The lightest members of all at every member: what the rounds can at best lead to."""
    overlay = new_overlay(members, view, 0)
    scale = scale_of(members, interests)
    count = len(members)
    for row in range(count):
        overlay.numbers[row] = absorb(absorb(keys.identity, i64(members[row])), 0)
    for row in range(count):
        own = own_key(overlay.numbers[row])
        have = 0
        for other in range(count):
            if other == row:
                continue
            weight = weigh(own, overlay.numbers, row, other, interests, scale)
            if have < view:
                put(overlay, row, other, weight, 0, have)
                have += 1
            elif lighter(overlay, weight, other, row, view - 1):
                put(overlay, row, other, weight, 0, view - 1)
    snapshot(overlay, links, start)
