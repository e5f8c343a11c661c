"""The rounds of StaN (Algorithm 2) in one topic's overlay, compiled.

Members act one after the other, in an order drawn for each topic and round, and see what those
before them have done (as in a cycle-driven simulator). Every draw is keyed by topic, member and
round, so an overlay's outcome does not depend on which others are computed with it. A member that
lost its last in-link by what another did asks for one before the next member acts.

Deviation: loss strikes walks, replies and requests for adoption; notices of in-links always arrive.
Peers send notices over reliable connections, and a peer whose connection broke learns the same from
the walks that no longer come by.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from weft.engine.core.arrays import Ids, Numbers
from weft.engine.core.draws import absorb, below, domain_bits, next_in_order
from weft.engine.core.jit import Bits, compiled, i64, part, shared, u64
from weft.engine.stan.views import (
    Interests,
    Keys,
    Overlay,
    Weighing,
    adopt,
    count_in_links,
    fill,
    lighter,
    new_overlay,
    notify,
    offer,
    own_key,
    put,
    remember,
    slot_in,
    snapshot,
    start_with,
    weigh,
    weighing_of,
)
from weft.rules.stan import can_be_found, is_from_afar, is_lonely
from weft.rules.tera import next_period

shared(can_be_found, is_from_afar, is_lonely, next_period)


class Options(NamedTuple):
    """How a round goes; chances are out of 2³²."""

    ttl: int
    rounds: int
    loss: int  # that one message is lost
    churn: int  # that a node leaves in a round, and another takes its place
    overheard: bool  # whether those a walk passes read it for candidates
    patience: int  # quiet rounds before a member asks to be adopted; 0: nobody ever does
    longest: int  # the walk's period backs off up to so many rounds; 1: not at all
    memory: bool  # whether members add what their own last walk collected


@part
def collect(overlay: Overlay, member: int, walk: int, count: int) -> int:
    """Add a member to the walk's set, once; returns how many that has."""
    if overlay.seen[member] != walk:
        overlay.seen[member] = walk
        overlay.found[count] = member
        count += 1
    return count


@compiled
def merge(
    overlay: Overlay, row: int, origin: int, count: int, options: Options, weighing: Weighing
) -> bool:
    """Rank a walk's origin (unless it is −1) and its set in a view; returns whether the view
    changed. Where members ask for adoption, the members that it took in or dropped are told."""
    own = own_key(overlay.numbers[row])
    changed = False
    if options.patience > 0:
        remember(overlay, row)
    for at in range(-1, count):
        member = i64(overlay.found[at]) if at >= 0 else origin
        if member not in (row, -1):
            weight = weigh(own, overlay.numbers, row, member, weighing)
            changed |= offer(overlay, row, member, weight)
    if changed and options.patience > 0:
        notify(overlay, row)
    return changed


@part
def lost(key: Bits, message: int, chance: int) -> bool:
    return chance > 0 and i64(absorb(key, message) >> u64(32)) < chance


@part
def recall(overlay: Overlay, row: int, walk: int, own: int) -> int:
    """Add to a walk's set what the visited members remember, and let the origin remember what the
    walk itself collected (the first `own`); returns how many members the set has."""
    count = own
    for step in range(len(overlay.trail)):
        at = i64(overlay.trail[step])
        for place in range(i64(overlay.kept[at])):
            count = collect(overlay, i64(overlay.memory[at, place]), walk, count)
    overlay.memory[row, :own] = overlay.found[:own]
    overlay.kept[row] = own
    return count


@part
def walk(
    overlay: Overlay,
    row: int,
    number: int,
    keys: tuple[Bits, Bits],
    options: Options,
    weighing: Weighing,
) -> bool:
    """One member's walk and what it makes of the reply; returns whether its view changed."""
    step_key, loss_key = keys
    at = row
    count = 0
    for step in range(options.ttl + 1):
        at = i64(overlay.ids[at, below(absorb(step_key, step), i64(overlay.sizes[at]))])
        if lost(loss_key, step, options.loss):
            return False
        if at != row:
            if is_from_afar(step):
                overlay.heard[at] = 1
            if options.overheard:
                merge(overlay, at, row, count, options, weighing)
        overlay.trail[step] = at
        count = collect(overlay, at, number, count)
        for slot in range(i64(overlay.sizes[at])):
            count = collect(overlay, i64(overlay.ids[at, slot]), number, count)
    if lost(loss_key, options.ttl + 1, options.loss):
        return False
    if options.memory:
        count = recall(overlay, row, number, count)
    return merge(overlay, row, -1, count, options, weighing)


@compiled
def ask_for_a_link(
    overlay: Overlay, row: int, key: Bits, options: Options, weighing: Weighing
) -> None:
    """A member asks its neighbours to adopt it, the lightest first, until one that can be found
    without it holds it, or a message is lost."""
    for slot in range(i64(overlay.sizes[row])):
        asked = i64(overlay.ids[row, slot])
        if lost(key, slot, options.loss):
            return
        lately = bool(overlay.heard[asked]) or overlay.quiet[asked] == 0
        if can_be_found(lately, i64(overlay.in_links[asked]) - 1):  # the asker's link is one
            if slot_in(overlay, asked, row) >= 0:
                return
            own = own_key(overlay.numbers[asked])
            weight = weigh(own, overlay.numbers, asked, row, weighing)
            remember(overlay, asked)
            if adopt(overlay, asked, row, weight):
                notify(overlay, asked)
                return


@compiled
def help_waiting(
    overlay: Overlay, tick: int, turn: int, keys: Keys, options: Options, weighing: Weighing
) -> None:
    """Members that lost their last in-link ask for another. An adoption may take the last in-link
    of a further member, which joins the queue; the queue ends, since a view adopts only so many."""
    place = 0
    while place < overlay.queued[0]:
        row = i64(overlay.waiting[place])
        place += 1
        if overlay.in_links[row] == 0:
            key = absorb(absorb(absorb(keys.adopt, i64(overlay.members[row])), tick), turn)
            ask_for_a_link(overlay, row, key, options, weighing)
    overlay.queued[0] = 0


@compiled
def comfort(overlay: Overlay, tick: int, keys: Keys, options: Options, weighing: Weighing) -> None:
    """At the end of a round, members without an in-link, or without a walk from afar for too long,
    ask for adoption."""
    count = len(overlay.members)
    for row in range(count):
        overlay.quiet[row] = 0 if overlay.heard[row] else overlay.quiet[row] + 1
    for row in range(count):
        if is_lonely(i64(overlay.in_links[row]), i64(overlay.quiet[row]), options.patience):
            key = absorb(absorb(absorb(keys.adopt, i64(overlay.members[row])), tick), count)
            ask_for_a_link(overlay, row, key, options, weighing)
    help_waiting(overlay, tick, count + 1, keys, options, weighing)
    overlay.heard[:] = 0


@compiled
def act(
    overlay: Overlay, tick: int, order: Numbers, keys: Keys, options: Options, weighing: Weighing
) -> None:
    """Every member whose turn it is walks, in random order."""
    count = len(overlay.members)
    positions = i64(1) << domain_bits(count)
    next_in_order(order, 0, 0, positions, count, absorb(keys.order, tick))
    for turn in range(count):
        row = i64(order[turn])
        if overlay.due[row] > tick:
            continue
        node = i64(overlay.members[row])
        step_key = absorb(absorb(keys.step, node), tick)
        loss_key = absorb(absorb(keys.loss, node), tick)
        number = tick * count + turn
        both = (step_key, loss_key)
        changed = walk(overlay, row, number, both, options, weighing)
        period = i64(overlay.period[row])
        overlay.period[row] = next_period(period, changed, options.longest)
        overlay.due[row] = tick + overlay.period[row]
        if overlay.queued[0]:
            help_waiting(overlay, tick, turn, keys, options, weighing)


@part
def leaves(node: int, tick: int, keys: Keys, chance: int) -> bool:
    """Whether a node is replaced at the start of this round: in all of its topics at once."""
    return i64(absorb(absorb(keys.churn, node), tick) >> u64(32)) < chance


@part
def forget_leavers(overlay: Overlay) -> None:
    """Clear the memory of newcomers, and remove leavers from that of others; while leavers are
    replaced, `heard` marks the rows that have a new node."""
    for row in range(len(overlay.members)):
        left = 0
        for place in range(i64(overlay.kept[row]) if overlay.heard[row] == 0 else 0):
            member = i64(overlay.memory[row, place])
            if overlay.heard[member] == 0:
                overlay.memory[row, left] = member
                left += 1
        overlay.kept[row] = left


@compiled
def replace_leavers(
    overlay: Overlay, tick: int, generations: Ids, keys: Keys, options: Options, weighing: Weighing
) -> None:
    """Nodes leave, and others take their places with ids and views of their own. A member that had
    a leaver in its view has noticed by the next round and been given a random member instead."""
    count = len(overlay.members)
    for row in range(count):
        node = i64(overlay.members[row])
        gone = leaves(node, tick, keys, options.churn)
        overlay.heard[row] = gone
        if gone:
            generations[row] += 1
            overlay.numbers[row] = absorb(absorb(keys.identity, node), i64(generations[row]))
    for row in range(count):
        have = adopted = 0
        view = i64(overlay.sizes[row])
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
        fill(overlay, row, have, key, weighing)
        overlay.period[row], overlay.due[row], overlay.quiet[row] = 1, tick, 0
    if options.memory:
        forget_leavers(overlay)
    overlay.heard[:] = 0


class Topic(NamedTuple):
    """One topic that is to be computed."""

    members: Ids  # nodes, ascending
    sizes: Ids  # of the view of each
    first: Ids  # the views to start with, member by member; empty: random ones are drawn
    start: int  # where its links begin
    keys: Keys


class Wanted(NamedTuple):
    """Where links are written down."""

    places: Numbers  # for the views after each number of rounds a row of `links`, or −1
    links: Ids


@part
def _number_all(overlay: Overlay, keys: Keys) -> None:
    """Members get their numbers."""
    for row in range(len(overlay.members)):
        overlay.numbers[row] = absorb(absorb(keys.identity, i64(overlay.members[row])), 0)


@compiled
def run_topic(topic: Topic, options: Options, interests: Interests, wanted: Wanted) -> None:
    """All rounds of one topic."""
    keys = topic.keys
    overlay = new_overlay(topic.members, topic.sizes, options.ttl, options.memory)
    weighing = weighing_of(topic.members, interests)
    count = len(topic.members)
    _number_all(overlay, keys)
    begin = 0
    for row in range(count):
        end = begin + i64(topic.sizes[row])
        if len(topic.first) > 0:
            start_with(overlay, row, topic.first[begin:end], weighing)
        else:
            fill(overlay, row, 0, absorb(keys.first, i64(topic.members[row])), weighing)
        begin = end
    if wanted.places[0] >= 0:
        snapshot(overlay, wanted.links[wanted.places[0]], topic.start)
    order = np.empty(count + 1, np.int64)
    generations = np.zeros(count, np.int32)
    count_in_links(overlay)
    for tick in range(1, options.rounds + 1):
        if options.churn > 0:
            replace_leavers(overlay, tick, generations, keys, options, weighing)
            count_in_links(overlay)
        act(overlay, tick, order, keys, options, weighing)
        if options.patience > 0:
            comfort(overlay, tick, keys, options, weighing)
        if wanted.places[tick] >= 0:
            snapshot(overlay, wanted.links[wanted.places[tick]], topic.start)


@compiled
def ideal_topic(topic: Topic, interests: Interests, links: Ids) -> None:
    """Give every member the lightest of all others as neighbours: the best that rounds could do."""
    overlay = new_overlay(topic.members, topic.sizes, 0, False)
    weighing = weighing_of(topic.members, interests)
    count = len(topic.members)
    _number_all(overlay, topic.keys)
    for row in range(count):
        own, view = own_key(overlay.numbers[row]), i64(topic.sizes[row])
        have = 0
        for other in range(count):
            if other == row:
                continue
            weight = weigh(own, overlay.numbers, row, other, weighing)
            if have < view:
                put(overlay, row, other, weight, 0, have)
                have += 1
            elif lighter(overlay, weight, other, row, view - 1):
                put(overlay, row, other, weight, 0, view - 1)
    snapshot(overlay, links, topic.start)
