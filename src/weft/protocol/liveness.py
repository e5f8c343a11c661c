"""Liveness: which peers are silent although a sign of life was expected of them. There is no
oracle; pings ask.

*What is expected.* A request is answered by the peer that it went to (`Message.asks`), and a peer
that events go to over a link should live (`Message.feeds`); so should a peer that fed this one. A
peer that sends nothing at all for a while after that is pinged; any message is a sign of life, so a
link that is busy in both directions needs no ping. After several unanswered pings the peer counts
as lost, and every layer is told. A peer that left the first ping unanswered is in doubt: a layer
that waits for it may turn to another peer.

*Links at rest.* One watch per linked peer, whatever the number of topics shared with it. A linked
peer that has been silent for long is pinged, too. Pings carry a fingerprint of the topics in which
the sender believes to be linked; if the ends disagree, they exchange the lists.

*Many at once.* Peers do not always die one by one. When several are in doubt or lost at the same
time, this peer pings the others that it knows, a bounded number, so that a view of the dead is
known as such within seconds (HyParView, Section 4.4, has a reactive view of few and TCP's resets
for this, which do not come where a whole machine or its network is gone). A linked peer that has
spoken since the silence began is not pinged: it did not die with the others.

A network that is cut is silent, too, or its connections break. Linked peers that were lost, and
others that fell silent, are pinged again now and then for a day; when one answers, the layers are
told (`PeerBack`), so two parts of a network that lost each other are soon one again. The longer a
peer has been silent, the rarer these pings are; once one speaks again, the others have their turn.

How long an answer may take is learned from those that came (as TCP's retransmission timeout, RFC
6298): where all answers are late, peers must not be taken for dead. Nor must they where messages
are lost: after a doubted peer has spoken, this one sends twice as many pings, for a while, before
it counts a peer as lost.

Delays on this side are not the others' silence: a peer's time to answer does not run while messages
to it have not left (`seam.Stalled`), and when this peer looked late itself, all answers may be as
late. Otherwise a crowd that enters at once, more than a machine has time for, takes its peers for
dead, looks around for others, and so has still more to do.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from typing import Annotated, NamedTuple

from msgspec import Meta

from weft.bounded import BoundedDict
from weft.ids import GENERAL, Contact, PeerId, Topic, WireTopic
from weft.protocol.context import Context, PeerBack
from weft.protocol.seam import Effect, Hold, Millis, Release, Send
from weft.protocol.wire import LIST_MAX, Counter, Message
from weft.rules.draw import stream_of


class Ping(Message, frozen=True, tag=19):
    """Asks for a sign of life."""

    nonce: Counter
    links: Counter  # fingerprint of the topics in which the sender is linked to the receiver


class Pong(Message, frozen=True, tag=20):
    """Answers `Ping`."""

    nonce: Counter
    links: Counter


class LinkList(Message, frozen=True, tag=21):
    """Sent when fingerprints differ: the topics in which the sender holds a link."""

    topics: Annotated[list[WireTopic], Meta(max_length=LIST_MAX)]
    first: bool  # False: an answer, not to be answered again


TIMER = "liveness"
"""The time at which links at rest are looked through."""
ANSWERS = "liveness.answers"
"""The time at which late answers are looked for, as long as any is expected."""

_REST_MS = 5_000
"""guess: how often links at rest are looked through."""
_LOOK_MS = 500
"""guess: how often late answers are looked for."""
_PATIENCE_MAX = 4
"""guess: a network may be so many times slower than `answer_ms` says before answers count as
late; with a reply timeout of 5 s, longer waiting would say nothing."""
_SLOWER = 4
"""guess: an answer is late after so many times the usual time, as in RFC 6298."""
_DOUBTED = 2
"""A peer is in doubt when it is pinged for the second time."""
_MANY = 2
"""guess: so many peers lost or in doubt at once are more than one by one."""
_MANY_MS = 5_000
"""guess: within that time they count as at once, and no peer is pinged twice for it …"""
_LOOK_MS_MAX = 40_000
"""guess: … the pause before it is pinged again doubles up to this while no linked peer is lost:
names that others made up are lost all the time, and must not have this peer ping all it knows."""
_LOOKED_AT_MAX = 128
"""guess: peers remembered as pinged because others died."""
_WARY_MS = 60_000
"""guess: how long a doubt that was wrong is remembered …"""
_WARY = 2
"""guess: … and how many times more pings are sent meanwhile. Where one message of ten is lost, a
request and three pings, each with its answer, all fail in one case of 770; with six in one of
100,000."""
_MISSED_MAX = 32
"""guess: peers that fell silent and are pinged again."""
_MISSED_AT_ONCE = 2
"""guess: how many of them are pinged each time that links at rest are looked through."""
_MISSED_PART = 8
"""guess: a peer is pinged again after an eighth of the time for which it has been silent …"""
_MISSED_MS = 86_400_000
"""guess: … for a day, which takes some eighty pings."""


class _Watch:
    """A linked peer."""

    __slots__ = ("contact", "fingerprint", "heard", "nonce", "topics")

    def __init__(self, contact: Contact, now: Millis) -> None:
        self.contact = contact
        self.topics: dict[Topic, None] = {}
        self.fingerprint = 0
        self.heard = now
        self.nonce = 0  # of the ping that waits for its pong


class _Expected:
    """A peer of which a sign of life is expected."""

    __slots__ = ("asked", "contact", "due", "pings", "since")

    def __init__(self, contact: Contact, since: Millis, due: Millis, asked: bool) -> None:
        self.contact = contact
        self.since = since
        self.due = due  # when it is pinged, or counts as lost
        self.asked = asked  # by a request, and not only fed
        self.pings = 0


class _Look(NamedTuple):
    """When a peer was pinged because others died, and for how long it is not pinged again."""

    at: Millis
    pause_ms: Millis


class _Missed(NamedTuple):
    """A peer that fell silent."""

    contact: Contact
    topics: tuple[Topic, ...]  # in which it was linked
    since: Millis
    due: Millis  # when it is pinged again


class Liveness:
    """Watches every peer that this peer has a link to, or has asked something."""

    def __init__(self, ctx: Context) -> None:
        self._ctx = ctx
        self.watched: dict[PeerId, _Watch] = {}
        self._expected: dict[PeerId, _Expected] = {}
        self._armed = False
        self._look_at_ms: Millis = 0  # when answers are looked through next
        self._wary_until: Millis = 0
        self._usual_ms = 0  # between a request and the first sign of life after it
        self._losses: deque[Millis] = deque(maxlen=_MANY)
        self._silent_since: Millis = 0  # when the peer that was lost last fell silent
        self._looked_at: BoundedDict[PeerId, _Look] = BoundedDict(_LOOKED_AT_MAX)
        self._missed: BoundedDict[PeerId, _Missed] = BoundedDict(_MISSED_MAX)

    def start(self) -> None:
        self._arm()

    def _arm(self) -> None:
        self._ctx.set_timer(_REST_MS, TIMER, GENERAL)

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

    # --- what is expected, and heard ----------------------------------------------------------

    def sent(self, effects: Iterable[Effect]) -> None:
        """Expect a sign of life of the peers that messages now go to, where one is due."""
        expected = self._expected
        for effect in effects:
            if type(effect) is not Send:
                continue
            message, peer = effect.message, effect.to.peer
            if message.asks:
                if peer not in expected:
                    self._expect(effect.to, self._patience_ms(), asked=True)
            elif message.feeds and peer in self.watched and peer not in expected:
                self._expect(effect.to, self._patience_ms(), asked=False)

    def heard_from(self, peer: PeerId, fed: bool) -> None:
        watch = self.watched.get(peer)
        if watch is not None:
            watch.heard = self._ctx.now
        if self._missed and peer in self._missed:
            missed = self._missed.pop(peer)
            self._ctx.tell(PeerBack(missed.contact, missed.topics))
            for one, other in self._missed.items():  # the cut may be over for them, too
                self._missed[one] = other._replace(due=self._ctx.now)
        expected, feeder = self._expected.get(peer), watch if fed else None
        if expected is not None:
            if expected.pings >= _DOUBTED:
                self._wary_until = self._ctx.now + _WARY_MS
            if expected.asked:
                took_ms = self._ctx.now - expected.since
                self._usual_ms += (took_ms - self._usual_ms) // 8
            if feeder is None:
                del self._expected[peer]
            elif not expected.asked and not expected.pings:  # nearly always, while events flow
                expected.since = self._ctx.now
                expected.due = self._ctx.now + self._patience_ms() + _LOOK_MS
                return
        if feeder is not None:
            self._expect(feeder.contact, self._patience_ms() + _LOOK_MS, asked=False)

    def on_resumed(self, peer: PeerId) -> None:
        """The peer's time to answer runs from now, since requests and pings leave only now."""
        expected = self._expected.get(peer)
        if expected is not None:
            expected.since = self._ctx.now
            expected.due = self._ctx.now + self._patience_ms()

    def lose(self, peer: PeerId, left: bool) -> None:
        """The peer is gone, as the driver, this layer or the peer itself (`left`) said: nothing is
        expected of it. A connection can break since the network between its ends did."""
        expected = self._expected.pop(peer, None)
        self._silent_since = expected.since if expected is not None else self._ctx.now
        watch = self.watched.get(peer)
        if watch is not None and not left:
            self._miss(watch.contact)
        if watch is not None:  # not a name that was never anybody's
            for one, look in self._looked_at.items():
                self._looked_at[one] = look._replace(pause_ms=_MANY_MS)
        self._looked_at.renew(peer, _Look(self._ctx.now, _MANY_MS))
        self._losses.append(self._ctx.now)

    def doubts(self, peer: PeerId) -> bool:
        """Whether the peer has left a ping unanswered."""
        expected = self._expected.get(peer)
        return expected is not None and expected.pings >= _DOUBTED

    @property
    def is_wary(self) -> bool:
        """Whether a doubt was wrong lately: messages get lost, or are slow."""
        return self._ctx.now < self._wary_until

    def _expect(self, contact: Contact, within_ms: Millis, asked: bool) -> _Expected:
        now = self._ctx.now
        expected = _Expected(contact, now, now + within_ms, asked)
        self._expected[contact.peer] = expected
        if not self._armed:
            self._look_again()
        return expected

    def _look_again(self) -> None:
        self._armed = True
        self._look_at_ms = self._ctx.now + _LOOK_MS
        self._ctx.set_timer(_LOOK_MS, ANSWERS, GENERAL)

    def _patience_ms(self) -> Millis:
        least_ms = self._ctx.config.links.answer_ms
        return min(max(least_ms, _SLOWER * self._usual_ms), _PATIENCE_MAX * least_ms)

    # --- pings ----------------------------------------------------------------------------------

    def on_timer(self) -> None:
        """Ping linked peers that have been silent for long."""
        ctx = self._ctx
        limit = ctx.now - ctx.config.links.ping_after_ms
        for peer, watch in self.watched.items():
            if watch.heard <= limit and peer not in self._expected:
                self._ping(self._expect(watch.contact, 0, asked=True))
        self._ping_missed()
        self._arm()

    def _ping_missed(self) -> None:
        """Ping some of the peers that fell silent: those whose turn was longest ago."""
        ctx = self._ctx
        due = [missed for missed in self._missed.values() if missed.due <= ctx.now]
        for missed in due[:_MISSED_AT_ONCE]:
            silent_ms = ctx.now - missed.since
            if silent_ms >= _MISSED_MS:
                del self._missed[missed.contact.peer]
                continue
            again = missed._replace(due=ctx.now + silent_ms // _MISSED_PART)
            self._missed.renew(missed.contact.peer, again)
            ctx.send(missed.contact, Ping(ctx.next_serial(), 0))

    def on_answers_timer(self) -> tuple[list[Contact], list[Contact]]:
        """Ping peers that have not spoken in time; returns those that are in doubt from now on, and
        those that count as lost."""
        ctx = self._ctx
        self._armed = False
        late_ms = ctx.now - self._look_at_ms
        wary = _WARY if self.is_wary else 1
        doubted, lost = [], []
        for peer, expected in self._expected.items():
            if late_ms > _LOOK_MS:
                expected.since += late_ms
                expected.due += late_ms
            if expected.due > ctx.now or ctx.is_stalled(peer):
                continue
            if expected.pings >= wary * ctx.config.links.pings_unanswered_max:
                lost.append(expected.contact)
                self._miss(expected.contact)
                continue
            self._ping(expected)
            if expected.pings == _DOUBTED:
                doubted.append(expected.contact)
        if self._expected:
            self._look_again()
        return doubted, lost

    def _miss(self, contact: Contact) -> None:
        """Remember a peer that fell silent; linked ones rather than others. One that another layer
        asked meanwhile has been silent for as long as before."""
        topics = tuple(self.topics_with(contact.peer))
        if contact.peer in self._missed and not topics:
            return
        if topics or len(self._missed) < _MISSED_MAX:
            now = self._ctx.now
            self._missed.renew(contact.peer, _Missed(contact, topics, now, now))

    def _ping(self, expected: _Expected) -> None:
        ctx = self._ctx
        patience_ms, least_ms = self._patience_ms(), ctx.config.links.answer_ms
        expected.pings += 1
        expected.due = ctx.now + ctx.config.links.ping_timeout_ms * patience_ms // least_ms
        nonce, watch = ctx.next_serial(), self.watched.get(expected.contact.peer)
        if watch is not None:
            watch.nonce = nonce
        ctx.send(expected.contact, Ping(nonce, self._fingerprint(expected.contact.peer)))

    # --- many at once ---------------------------------------------------------------------------

    @property
    def many_lost(self) -> bool:
        """Whether several peers were lost, or came into doubt, at about the same time."""
        limit = self._ctx.now - _MANY_MS
        recent = sum(at > limit for at in self._losses)
        return recent + sum(one.pings >= _DOUBTED for one in self._expected.values()) >= _MANY

    def look_at(self, contacts: Iterable[Contact]) -> None:
        """Ping these peers, unless they were pinged a moment ago or have spoken since."""
        now = self._ctx.now
        doubted = (one.since for one in self._expected.values() if one.pings >= _DOUBTED)
        silent_since = min(doubted, default=self._silent_since)
        for contact in contacts:
            peer = contact.peer
            look = self._looked_at.get(peer)
            if peer in self._expected or (look is not None and now - look.at < look.pause_ms):
                continue
            watch = self.watched.get(peer)
            if watch is not None and watch.heard > silent_since:
                continue
            self._looked_at.renew(peer, _Look(now, _pause_after(look, now)))
            self._ping(self._expect(contact, 0, asked=True))

    def on_ping(self, sender: Contact, message: Ping) -> None:
        self._ctx.send(sender, Pong(message.nonce, self._fingerprint(sender.peer)))

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


def _pause_after(look: _Look | None, now: Millis) -> Millis:
    """Twice as long as after the last look, unless that is long ago."""
    if look is None or now - look.at >= 2 * _LOOK_MS_MAX:
        return _MANY_MS
    return min(2 * look.pause_ms, _LOOK_MS_MAX)


def topic_fingerprint(topic: Topic) -> int:
    """63 bits for a topic, as used in fingerprints of sets of topics."""
    return stream_of("topic", topic) >> 1
