"""Liveness of linked peers: pings over silent links, no oracle (systems page, section 0).

One watch per linked peer, whatever the number of topics shared with it. A peer that has been
silent is pinged; one that leaves several pings unanswered counts as lost. Pings carry a
fingerprint of the topics in which the sender believes to be linked; if the ends disagree, they
exchange the lists.
"""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta

from weft.ids import GENERAL, Contact, PeerId, Topic, WireTopic
from weft.protocol.context import Context
from weft.protocol.seam import Hold, Millis, Release
from weft.protocol.wire import LIST_MAX, Counter, Message
from weft.rules.draw import stream_of


class Ping(Message, frozen=True, tag=19):
    nonce: Counter
    links: Counter  # fingerprint of the topics in which the sender is linked to the receiver


class Pong(Message, frozen=True, tag=20):
    nonce: Counter
    links: Counter


class LinkList(Message, frozen=True, tag=21):
    """Sent when fingerprints differ: the topics in which the sender holds a link."""

    topics: Annotated[list[WireTopic], Meta(max_length=LIST_MAX)]
    first: bool  # False: an answer, not to be answered again


TIMER = "liveness"


class _Watch:
    """A linked peer."""

    __slots__ = ("contact", "fingerprint", "heard", "nonce", "pinged", "topics", "unanswered")

    def __init__(self, contact: Contact, now: Millis) -> None:
        self.contact = contact
        self.topics: dict[Topic, None] = {}
        self.fingerprint = 0
        self.heard = now
        self.nonce = 0  # of the ping that waits for its pong
        self.pinged = now
        self.unanswered = 0


class Liveness:
    """Watches every peer that this peer has a link to."""

    def __init__(self, ctx: Context) -> None:
        self._ctx = ctx
        self.watched: dict[PeerId, _Watch] = {}

    def start(self) -> None:
        self._arm()

    def _arm(self) -> None:
        self._ctx.set_timer(self._ctx.config.links.ping_timeout_ms, TIMER, GENERAL)

    # --- what is watched ----------------------------------------------------------------------

    def link_up(self, contact: Contact, topic: Topic) -> None:
        watch = self.watched.get(contact.peer)
        if watch is None:
            watch = self.watched[contact.peer] = _Watch(contact, self._ctx.now)
            self._ctx.out.append(Hold(contact))
        if topic not in watch.topics:
            watch.topics[topic] = None
            watch.fingerprint ^= topic_fingerprint(topic)

    def link_down(self, peer: PeerId, topic: Topic) -> None:
        watch = self.watched.get(peer)
        if watch is None or topic not in watch.topics:
            return
        del watch.topics[topic]
        watch.fingerprint ^= topic_fingerprint(topic)
        if not watch.topics:
            del self.watched[peer]
            self._ctx.out.append(Release(peer))

    def heard_from(self, peer: PeerId) -> None:
        watch = self.watched.get(peer)
        if watch is not None:
            watch.heard = self._ctx.now
            watch.unanswered = 0

    # --- pings ----------------------------------------------------------------------------------

    def on_timer(self) -> list[Contact]:
        """Ping silent peers; returns those that count as lost."""
        ctx, config = self._ctx, self._ctx.config.links
        lost = []
        for watch in self.watched.values():
            silent = ctx.now - watch.heard >= config.ping_after_ms
            if not silent or (watch.unanswered and ctx.now - watch.pinged < config.ping_timeout_ms):
                continue
            if watch.unanswered >= config.pings_unanswered_max:
                lost.append(watch.contact)
                continue
            watch.unanswered += 1
            watch.pinged = ctx.now
            watch.nonce = ctx.next_serial()
            ctx.send(watch.contact, Ping(watch.nonce, watch.fingerprint))
        self._arm()
        return lost

    def on_ping(self, sender: Contact, message: Ping) -> None:
        mine = self._fingerprint(sender.peer)
        self._ctx.send(sender, Pong(message.nonce, mine))

    def on_pong(self, sender: Contact, message: Pong) -> None:
        watch = self.watched.get(sender.peer)
        if watch is None or not watch.nonce or watch.nonce != message.nonce:
            return
        watch.nonce = 0
        if message.links != watch.fingerprint:
            self.send_list(sender, first=True)

    def send_list(self, to: Contact, first: bool) -> None:
        self._ctx.send(to, LinkList(self.topics_with(to.peer)[:LIST_MAX], first))

    def topics_with(self, peer: PeerId) -> list[Topic]:
        watch = self.watched.get(peer)
        return list(watch.topics) if watch is not None else []

    def _fingerprint(self, peer: PeerId) -> int:
        watch = self.watched.get(peer)
        return watch.fingerprint if watch is not None else 0


def topic_fingerprint(topic: Topic) -> int:
    """63 bits for a topic, as used in fingerprints of sets of topics."""
    return stream_of("topic", topic) >> 1
