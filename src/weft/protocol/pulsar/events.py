"""How events spread in a tree: over every link once; and how what got lost is made up for.

An event of a member goes over all its links, and each member passes it on over all of its own but
the one it came by.

Over every new link, and every cycle, the two ends compare what they have seen (`recent.py`). So
a member that was without a parent for a while gets what it missed and gives what should have gone
up, two parts of a tree that find each other again end with the same events, and a lost message is
made up for within some cycles. A repaired event is passed on like any other: what a member missed,
those below it missed as well.
"""

from __future__ import annotations

from weft.ids import Contact, PeerId, Topic
from weft.protocol import recent
from weft.protocol.context import Context
from weft.protocol.delivery import DUPLICATE_MESSAGE, Delivery, note_parasite, trace_event
from weft.protocol.publication import RouteEvent, RouteResult
from weft.protocol.pulsar.branch import Branch, Trees
from weft.protocol.recent import Offer, Repair, Want
from weft.protocol.seam import Millis
from weft.protocol.wire import HOPS_MAX, Event, Payload
from weft.rules.draw import stream_of
from weft.rules.multicast import onward

_ELSEWHERE = stream_of("pulsar.elsewhere")
_DIFFERS_MAX = 2
"""guess: cycles; while events flow, the two ends of a link often differ for a moment."""


class Events:
    """The events of one peer's trees."""

    def __init__(self, ctx: Context, delivery: Delivery, trees: Trees) -> None:
        self._ctx = ctx
        self._delivery = delivery
        self._trees = trees

    def publish(self, topic: Topic, event: Event, delivered: bool) -> bool:
        """Spread an event of this peer's own, if it is in the tree or about to be."""
        branch = self._trees.get(topic)
        if branch is None:
            return False
        if branch.recent.admit(event, 0, None, self._ctx.now):
            if branch.subscribed and not delivered:
                self._delivery.deliver(topic, event, 0, None)
            self._push(branch, event, 0, None)
        return True

    # --- handlers ---------------------------------------------------------------------------------

    def on_payload(self, sender: Contact, message: Payload) -> None:
        ctx, event = self._ctx, message.event
        ctx.counters["payloads_received"] += 1
        branch = self._trees.get(message.topic)
        if branch is None:
            ctx.counters["not_subscribed"] += 1
            note_parasite(ctx, message.topic, event, sender.peer)
            return
        hops = min(message.hops, HOPS_MAX - 1)  # room for one more hop
        if not self._accept(branch, event, hops, sender):
            ctx.counters["duplicates"] += 1
            trace_event(ctx, DUPLICATE_MESSAGE, message.topic, event, sender.peer, hops)

    def on_route_event(self, sender: Contact, message: RouteEvent) -> None:
        """A peer outside of the tree hands an event to it."""
        event = message.event
        self._ctx.counters["routed_received"] += 1
        branch = self._trees.get(message.topic)
        taken = False
        if branch is not None and branch.attached and not message.again:
            self._accept(branch, event, 1, sender)
            taken = branch.recent.has_seen(event)
        result = RouteResult(message.topic, event.incarnation, event.number, taken)
        self._ctx.send(sender, result)

    def on_offer(self, sender: Contact, message: Offer) -> None:
        branch = self._trees.get(message.topic)
        if branch is not None and not branch.fresh:
            recent.on_offer(self._ctx, branch.recent, sender, message)

    def on_want(self, sender: Contact, message: Want) -> None:
        branch = self._trees.get(message.topic)
        if branch is not None:
            recent.on_want(self._ctx, branch.recent, sender, message)

    def on_repair(self, sender: Contact, message: Repair) -> None:
        branch = self._trees.get(message.topic)
        if branch is None:
            return
        new = sum(self._accept(branch, event, 0, sender) for event in message.events)
        self._ctx.counters["repaired"] += new
        self._ctx.counters["repairs_duplicate"] += len(message.events) - new

    # --- comparing over links ---------------------------------------------------------------------

    def compare(self, branch: Branch, other: Contact, fingerprint: int, settle_ms: Millis) -> bool:
        """Offer what is held here to another member that has seen something else; says whether
        it has."""
        if branch.fresh:
            return False
        return recent.compare(self._ctx, branch.topic, branch.recent, other, fingerprint, settle_ms)

    def compare_again(self, branch: Branch, other: Contact, fingerprint: int) -> None:
        """Over a link that stands, every cycle. If both ends differ for longer, neither may hold
        what the other lacks (one that came later has passed it over): then any member is asked."""
        settle_ms = self._ctx.config.dissemination.settle_ms
        differs = self.compare(branch, other, fingerprint, settle_ms)
        if branch.count_differing(differs) < _DIFFERS_MAX:
            return
        known = {one.peer: one for one in (*branch.path, *branch.roots)}
        known |= branch.subscribers()
        linked = branch.links()
        others = [one for peer, one in known.items() if peer not in linked]
        others = [one for one in others if one.peer != self._ctx.me.peer]
        if others:
            chosen = self._ctx.pick(_ELSEWHERE, others)
            self.compare(branch, chosen, fingerprint, settle_ms)

    # --- helpers ----------------------------------------------------------------------------------

    def _accept(self, branch: Branch, event: Event, hops: int, sender: Contact) -> bool:
        delivery, source = self._delivery, sender.peer
        ask = branch.subscribers().get(source) if delivery.stored else None
        taken = delivery.take_in(
            branch.topic, branch.recent, event, hops, source, ask, branch.subscribed
        )
        if taken:
            self._push(branch, event, hops, sender.peer)
        return taken

    def _push(self, branch: Branch, event: Event, hops: int, source: PeerId | None) -> None:
        fellow = branch.fellows.get(source) if source is not None else None
        told = fellow.joined_to if fellow is not None else ()
        message = Payload(branch.topic, event, hops + 1)
        for contact in onward(branch.links(), source, told):
            self._ctx.send(contact, message)
