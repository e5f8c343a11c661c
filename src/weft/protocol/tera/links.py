"""Stable links of one topic: the neighbours that carry events (see `rules/tree.py`).

A link is agreed on by both ends. Messages may be lost, so one end can believe in a link that the
other does not know: whatever arrives over a link nobody agreed on is answered with `Unlink`, and
the pings of `liveness.py` compare both ends' lists.

Where members are ranked (`stan.py`), links to the first of the ranking are asked for even when
there are enough, one at a time; a link that neither end wants most, and that carries no events, is
given up afterwards. So links move to the same peers in all topics, and no tree loses a branch.

Views of a topic that has just grown name the first members, which are full. So a full member that
refuses a request offers one of its links to be given up, as above, and hands the place on to the
peer that it refused. No member gets fewer links than it wants by that, and nobody asks further.
Measured with 100 members that come in ten groups, 40 runs: before, in 24 a member lacked links
after two minutes, and one had a single link for 35 s; now the last has its five after 14 s, 10 s in
nine runs of ten, and nobody has less than two. Taking members with one link as urgent, too, changes
nothing.

Against members that want all links of a peer (eclipse): a link gives way to an urgent request only
if the other end had asked for it, it carries no events, and none has given way for a while. And
`chosen` links are of the peer's own choice, however many others have asked for one. A member that
brought nothing (`defence.py`) is given up, and is not linked again for a while.

Invariants: at most `most` links, as far as the peer's capacity goes (`rules/capacity.py`); a peer
is linked or asked, never both.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import ClassVar

from weft.bounded import BoundedDict
from weft.ids import Contact, PeerId, Topic, WireTopic
from weft.protocol.context import Context, LinkDown, LinkUp
from weft.protocol.seam import Millis
from weft.protocol.settings import Settings, require, require_positive
from weft.protocol.wire import Counter, Message
from weft.rules import tree
from weft.rules.capacity import LINKS_MOST, links_most
from weft.rules.draw import stream_of


class LinkRequest(Message, frozen=True, tag=16):
    """Asks for a link."""

    asks: ClassVar[bool] = True

    topic: WireTopic
    urgent: bool  # the asker has no other link, or was cut off from events
    recent: Counter = 0  # fingerprint of recent events, as in OverlayNews


class LinkReply(Message, frozen=True, tag=17):
    """Answers `LinkRequest`: whether there is a link now."""

    topic: WireTopic
    accepted: bool
    recent: Counter = 0


class Unlink(Message, frozen=True, tag=18):
    """There is no link between sender and receiver (any more)."""

    topic: WireTopic


class LinkRelease(Message, frozen=True, tag=33):
    """The sender has better links, or needs the place for another peer: give this one up (by
    Unlink) if that is no loss to you."""

    topic: WireTopic


class Config(Settings):
    """The small stable set of neighbours per topic that carries events."""

    wanted: int = 5  # measured: the smallest degree that kept 10^4 random graphs connected
    most: int = 10  # guess: twice the wanted number, so that requests are rarely refused
    chosen: int = 2  # paper (GossipSub v1.1): links asked for by the peer itself
    request_timeout_ms: Millis = 5_000  # guess
    ping_after_ms: Millis = 15_000  # guess: a linked peer is probed after so long a silence
    answer_ms: Millis = 1_500  # guess: a peer that owes a sign of life is pinged after so long
    ping_timeout_ms: Millis = 1_000  # measured: so a silent death is noticed in 4.5 to 5 s
    pings_unanswered_max: int = 3  # guess

    def __post_init__(self) -> None:
        require(1 <= self.wanted <= self.most, "links.wanted must be between 1 and links.most")
        require(self.most <= LINKS_MOST, f"links.most must be at most {LINKS_MOST}")
        require_positive(self, "links")


_CHOOSE = stream_of("links.choose")
_EVICT = stream_of("links.evict")
_GIVE_WAY_MS = 5_000
"""guess: between two links that give way to urgent requests."""
_OFFER_MS = 1_000
"""measured: between two links offered to make room. With 5 s, some of ten members that come at once
to full ones wait for their next cycle with one link."""
_SHUNNED_MS = 60_000
"""guess: for so long a member that brought nothing is not linked again."""
_SHUNNED_MAX = 64
"""guess: members remembered that brought nothing; a view has 20."""
_RELEASE_CYCLES = 30
"""guess: a neighbour that did not give a link up is asked again after so long."""


class Links:
    """The links of one peer in one topic."""

    __slots__ = (
        "_asked",
        "_carries",
        "_chosen",
        "_ctx",
        "_full",
        "_gave_way",
        "_kept",
        "_offered",
        "_shunned",
        "_topic",
        "_turned_away",
        "linked",
    )

    def __init__(self, ctx: Context, topic: Topic, carries: Callable[[PeerId], bool]) -> None:
        """`carries`: whether events depend on the link to a peer."""
        self._ctx = ctx
        self._topic = topic
        self._carries = carries
        self.linked: dict[PeerId, Contact] = {}
        self._chosen: dict[PeerId, None] = {}  # of these, those that this peer asked for
        self._gave_way: Millis = -_GIVE_WAY_MS  # when a link last did
        # Members that brought nothing, and until when that counts.
        self._shunned: BoundedDict[PeerId, Millis] = BoundedDict(_SHUNNED_MAX)
        self._asked: dict[PeerId, Millis] = {}
        # Members that said no lately, or say nothing: not the next ones to ask.
        self._full: BoundedDict[PeerId, Millis] = BoundedDict(ctx.config.cyclon.view_size)
        self._kept: dict[PeerId, Millis] = {}  # asked lately to give their link up
        self._offered: Millis = -_OFFER_MS  # when a link last was, to make a place
        # The peer that the place is for, and its fingerprint of events.
        self._turned_away: tuple[Contact, int] | None = None

    @property
    def _most(self) -> int:
        config = self._ctx.config
        return links_most(config.links.most, config.links.wanted, config.capacity)

    def room(self) -> int:
        """How many more members to ask for a link."""
        ctx = self._ctx
        limit_ms = ctx.config.links.request_timeout_ms
        for waiting in (self._asked, self._full):
            for peer, since in list(waiting.items()):
                if ctx.has_had_time(peer, since, limit_ms):
                    del waiting[peer]
        for peer in [peer for peer in self._shunned if not self.shuns(peer)]:
            del self._shunned[peer]
        config, asked = ctx.config, len(self._asked)
        more = tree.still_wanted(len(self.linked), asked, config.links.wanted)
        return max(more, tree.still_to_choose(len(self._chosen), asked, self._quota))

    @property
    def _quota(self) -> int:
        """How many links are to be of this peer's own choice; a ranking is nobody's choice."""
        config = self._ctx.config
        return config.links.chosen if config.defence.links and not config.stan.enabled else 0

    def maintain(self, candidates: Sequence[Contact], recent: int, ranked: bool = False) -> None:
        """Ask for links until there are enough, or nobody is left to ask: the first candidates if
        they are ranked, else any."""
        taken = {*self.linked, *self._asked, *self._full, *self._shunned}
        left = [contact for contact in candidates if contact.peer not in taken]
        for _ in range(min(self.room(), len(left))):
            contact = left[0] if ranked else self._ctx.pick(_CHOOSE, left)
            left.remove(contact)
            self.ask(contact, recent, urgent=not self.linked)

    # --- moving to better ones ------------------------------------------------------------------

    def improve(
        self, ranked: Sequence[Contact], recent: int, carries: Callable[[PeerId], bool]
    ) -> None:
        """Once a cycle: ask for one link that is wanted more, and offer to give one up that is
        wanted less."""
        config = self._ctx.config.links
        ideal = [contact for contact in ranked if contact.peer not in self._full][: config.wanted]
        missing = [contact for contact in ideal if contact.peer not in self.linked]
        if missing and not self._asked and len(self.linked) < self._most:
            self.ask(missing[0], recent, urgent=False)
        wanted = {contact.peer for contact in ideal}
        limit = self._ctx.now - _RELEASE_CYCLES * self._ctx.config.cyclon.cycle_ms
        self._kept = {peer: at for peer, at in self._kept.items() if at > limit}
        for contact in reversed(ranked):
            peer = contact.peer
            if peer not in self.linked or peer in self._kept:
                continue
            if tree.may_release(len(self.linked), config.wanted, peer in wanted, carries(peer)):
                self._kept[peer] = self._ctx.now
                self._ctx.send(contact, LinkRelease(self._topic))
                return

    def on_release(
        self, sender: Contact, ranked: Sequence[Contact], carries: Callable[[PeerId], bool]
    ) -> None:
        """The other end can do without this link: give it up if this one can, too."""
        peer, config = sender.peer, self._ctx.config.links
        if peer not in self.linked:
            self._ctx.send(sender, Unlink(self._topic))
            return
        ideal = any(contact.peer == peer for contact in ranked[: config.wanted])
        ideal = ideal or (peer in self._chosen and len(self._chosen) <= self._quota)
        if tree.may_release(len(self.linked), config.wanted, ideal, carries(peer)):
            self._ctx.counters["links_released"] += 1
            self._ctx.send(sender, Unlink(self._topic))
            self._drop(peer)

    # --- asking and answering -------------------------------------------------------------------

    def ask(self, contact: Contact, recent: int, urgent: bool) -> None:
        if contact.peer == self._ctx.me.peer or contact.peer in self.linked:
            return
        if contact.peer in self._asked or len(self._asked) >= self._most:
            return
        self._asked[contact.peer] = self._ctx.now
        self._ctx.send(contact, LinkRequest(self._topic, urgent, recent))

    def ask_again(self, contact: Contact, recent: int) -> None:
        """Ask for the link to a peer that was silent, and is back."""
        wanted = self._ctx.config.links.wanted
        if tree.may_ask_again(len(self.linked), wanted) and not self.shuns(contact.peer):
            self.ask(contact, recent, urgent=False)

    def on_request(self, sender: Contact, message: LinkRequest, recent: int) -> None:
        if sender.peer not in self.linked:
            accepted = tree.accepts(len(self.linked), self._most, message.urgent)
            shunned = self.shuns(sender.peer)
            if not accepted or shunned or not self._makes_room():
                self._ctx.send(sender, LinkReply(self._topic, False, recent))
                if not shunned:
                    self._offer_place(sender, message.recent)
                return
            self._add(sender, message.recent)
        self._ctx.send(sender, LinkReply(self._topic, True, recent))

    def _makes_room(self) -> bool:
        """Whether a link may give way to one that another peer asks for."""
        config, now = self._ctx.config, self._ctx.now
        if not tree.must_evict(len(self.linked), self._most) or not config.defence.links:
            return True
        if now - self._gave_way < _GIVE_WAY_MS or not self._spare():
            return False
        self._gave_way = now
        return True

    def _offer_place(self, refused: Contact, recent: int) -> None:
        """Ask a neighbour for a link back, in case that both can spare it, for the peer that was
        refused."""
        spare, now = self._spare(), self._ctx.now
        if not spare or now - self._offered < _OFFER_MS:
            return
        if tree.may_release(len(self.linked), self._ctx.config.links.wanted, False, False):
            self._offered, self._turned_away = now, (refused, recent)
            self._ctx.send(self.linked[self._ctx.pick(_EVICT, spare)], LinkRelease(self._topic))

    def _spare(self) -> list[PeerId]:
        """Links that the other ends asked for and that no event depends on."""
        return [one for one in self.linked if one not in self._chosen and not self._carries(one)]

    def on_reply(self, sender: Contact, message: LinkReply) -> None:
        if not message.accepted:
            if sender.peer in self.linked:
                self._drop(sender.peer)
            elif self._asked.pop(sender.peer, None) is not None:
                self._full[sender.peer] = self._ctx.now
        elif sender.peer in self._asked:
            self._chosen[sender.peer] = None
            self._add(sender, message.recent)
        else:  # a place was made, or an answer is late: no reason to have more than enough links
            self.adopt(sender, message.recent, self._ctx.config.links.wanted)

    def adopt(self, sender: Contact, recent: int = 0, most: int | None = None) -> bool:
        """The other end believes in a link: believe in it too if there is room, else say no."""
        if sender.peer in self.linked:
            return True
        full = tree.must_evict(len(self.linked), self._most if most is None else most)
        if full or self.shuns(sender.peer):
            self._ctx.send(sender, Unlink(self._topic))
            return False
        self._add(sender, recent)
        return True

    def shun(self, peer: PeerId) -> None:
        """A member has brought nothing: give its link up, and do not link it again for a while."""
        contact = self.linked.get(peer)
        if contact is not None:
            self._ctx.counters["links_shunned"] += 1
            self._shunned.renew(peer, self._ctx.now + _SHUNNED_MS)
            self._ctx.send(contact, Unlink(self._topic))
            self._drop(peer)

    def shuns(self, peer: PeerId) -> bool:
        return self._shunned.get(peer, 0) > self._ctx.now

    def on_unlink(self, sender: Contact, recent: int) -> None:
        if not self.lose(sender.peer):
            return
        self._full[sender.peer] = self._ctx.now
        waiting, self._turned_away = self._turned_away, None
        limit_ms = self._ctx.config.links.request_timeout_ms
        if waiting is not None and self._ctx.now - self._offered < limit_ms:
            refused, theirs = waiting
            if self.adopt(refused, theirs):
                self._ctx.send(refused, LinkReply(self._topic, True, recent))

    def lose(self, peer: PeerId) -> bool:
        """The peer left, died or gave the link up; returns whether there was a link."""
        if peer in self.linked:
            self._drop(peer)
            return True
        self._asked.pop(peer, None)
        return False

    def on_doubt(self, peer: PeerId) -> None:
        """The peer may be gone: no link is expected of it for now."""
        self._asked.pop(peer, None)
        self._full[peer] = self._ctx.now

    def close(self) -> None:
        """Give up all links, without a word: a member that leaves says so to all its neighbours."""
        for peer in list(self.linked):
            self._drop(peer)

    def _add(self, contact: Contact, recent: int) -> None:
        if tree.must_evict(len(self.linked), self._most):
            spare = self._spare() if self._ctx.config.defence.links else []
            victim = self.linked[self._ctx.pick(_EVICT, spare or list(self.linked))]
            self._ctx.send(victim, Unlink(self._topic))
            self._drop(victim.peer)
        self._asked.pop(contact.peer, None)
        self.linked[contact.peer] = contact
        self._ctx.tell(LinkUp(self._topic, contact, recent))

    def _drop(self, peer: PeerId) -> None:
        del self.linked[peer]
        self._chosen.pop(peer, None)
        self._ctx.tell(LinkDown(self._topic, peer))
