"""One topic that this peer is subscribed to: its overlay, its links, its events.

Composes the layers of a topic overlay: Cyclon's moving view, the stable links drawn from it, a
dissemination scheme over them, recent events with their repair, and the size estimate. Also
holds the overlay's id, which merges by the rule in `rules/tera.py` (partition merging, TERA,
Section 3): every view exchange carries it, and one of two ids survives, for all members the same.

Deviation: a topic's view exchanges slow down while nothing changes, so that a peer in very many
topics pays for what happens and not for what it is subscribed to; an advertisement from a
member of the same overlay also fills free slots of the view, which heals a member that lost all
its neighbours; a member that had to be repaired asks its repairer for a link, which joins parts of
the link graph that lost each other.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from weft.bounded import BoundedDict
from weft.documents.run import Proven, Run
from weft.ids import Contact, OverlayId, PeerId, Topic, peer_text
from weft.protocol import recent
from weft.protocol.context import Context
from weft.protocol.defence import Answered, Informants, Silence
from weft.protocol.delivery import Arrival, Delivery, Taken, note_copy
from weft.protocol.membership import (
    MEMBERS_MAX,
    Cyclon,
    JoinReply,
    JoinRequest,
    JoinWalk,
    LeaveNotice,
    OverlayNews,
    ShuffleReply,
    ShuffleRequest,
)
from weft.protocol.multi_topic import MultiTopic
from weft.protocol.publication import RouteEvent
from weft.protocol.recent import IHave, Judged, Offer, Recent, Repair, Want, is_proven
from weft.protocol.seam import Millis, Scheme
from weft.protocol.spread import Spread
from weft.protocol.subscriptions import TopicPart
from weft.protocol.tera.access_points import Hint
from weft.protocol.tera.announcements import Announcer
from weft.protocol.tera.links import LinkReply, Links
from weft.protocol.tera.questions import Overdue, Passed
from weft.protocol.tera.size import Size
from weft.protocol.tera.stan import Acquaintances, CollectReply, Stan
from weft.protocol.tera.tree import Behind, Graft, Level, Prune, Tree
from weft.protocol.wire import HOPS_MAX, Span
from weft.rules import tera
from weft.rules.capacity import FANOUT_LEAST, popularity_told, scaled

_LOST_MAX = 64
"""guess: lost members remembered; three full views."""
_HANDED_OVER = 2
"""guess: members that get what is published before the first link stands; one may be gone."""


class TopicState(TopicPart):
    """Everything this peer knows of one topic it is subscribed to."""

    __slots__ = (
        "_alone_period",
        "_answered",
        "_ctx",
        "_delivery",
        "_lost",
        "_period",
        "_quiet",
        "_scheme",
        "_silence",
        "entering",
        "links",
        "overlay",
        "scheme",
        "size",
        "stan",
        "tree",
        "view",
    )

    def __init__(
        self,
        ctx: Context,
        delivery: Delivery,
        multi_topic: MultiTopic,
        acquaintances: Acquaintances,
        announcer: Announcer,
        topic: Topic,
        overlay: OverlayId,
        scheme: Scheme,
        recent: Recent,
        informants: Informants,
        answered: Answered,
    ) -> None:
        super().__init__(topic, recent)
        self._answered = answered
        self._ctx = ctx
        self._delivery = delivery
        self.overlay = overlay
        self.scheme = scheme
        self.view = Cyclon(ctx, topic, informants)
        self.links = Links(ctx, topic, self._carries)
        self._silence = Silence(ctx)
        self.stan = Stan(ctx, topic, self.view, acquaintances)
        self.size = Size(ctx, topic, self.view)
        self.tree: Tree | None = None
        self.entering = True  # the subscription has not been answered yet
        # Neighbours that could not be reached any more.
        self._lost: BoundedDict[PeerId, None] = BoundedDict(_LOST_MAX)
        self._period = 1  # cycles between view exchanges
        self._quiet = True  # nothing has changed since the last one
        self._alone_period = 1  # cycles between lookups while this peer knows no other member
        if scheme == "tree":
            self.tree = Tree(ctx, multi_topic, topic, recent, self._silence, announcer)
            self._scheme: Tree | Spread = self.tree
        else:
            fanout = _fanout(ctx, scheme)
            over = self.stan if ctx.config.stan.enabled else self.view
            self._scheme = Spread(ctx, multi_topic, topic, recent, over, fanout)

    @property
    def alone(self) -> bool:
        """Whether this peer knows no other member."""
        return self.view.knows_nobody and not self.links.linked

    @property
    def is_thin(self) -> bool:
        """Whether this peer knows fewer members than it wants links."""
        return len(self.view.peers) < self._ctx.config.links.wanted

    @property
    def _is_small(self) -> bool:
        """Whether each member has room for links to all others. An empty view tells nothing of
        the others."""
        return bool(self.view.peers) and self.popularity <= 1 + self._ctx.config.links.most

    @property
    def popularity(self) -> int:
        return self.size.estimate(len(self.links.linked))

    @property
    def popularity_to_advertise(self) -> int:
        popularity = max(1, self.size.to_advertise(len(self.links.linked)))
        return min(popularity_told(popularity, self._ctx.config.capacity), MEMBERS_MAX)

    # --- events ---------------------------------------------------------------------------------

    def publish(self, proven: Proven, delivered: bool) -> None:
        """Deliver (unless that is done) and spread a run of this peer's own."""
        self._quiet = False
        if self._delivery.admit_own(self.recent, proven):
            if not delivered:
                self._delivery.deliver(self.topic, proven.run, 0, None)
            if self.tree is not None and self._reaches_all(proven.run):
                self.tree.push_straight(proven.run, None)
            else:
                self._scheme.push(proven.run, 0, None)
            if self.tree is not None and not self.tree.eager:
                self._hand_over(proven.run)

    def _hand_over(self, run: Run) -> None:
        """No link stands yet: members of the view spread the run, as they do for publishers from
        outside. It would come to them with the first link, but this peer may leave before."""
        for contact in self.view.sample(_HANDED_OVER):
            self._ctx.send(contact, RouteEvent(self.topic, run))

    def _reaches_all(self, run: Run) -> bool:
        """Whether this publisher has a link to each member of a small topic, and some of them are
        none of the tree's: then it pushes the run over all of them (`tree.py`)."""
        linked = self.links.linked
        if self.tree is None or not self.tree.lazy or run.sealed or run.parts:
            return False
        peers = self.view.peers
        return len(peers) <= len(linked) and all(map(linked.__contains__, peers)) and self._is_small

    def is_straight(self, sender: Contact, run: Run, reach: int) -> bool:
        """Whether a run need not be passed on: its publisher pushes it itself, in a small topic,
        over no fewer links than this member has."""
        linked = self.links.linked
        if self.tree is None or sender.peer != run.publisher or sender.peer not in linked:
            return False
        return len(linked) <= reach and self._is_small

    def judge(self, run: Run, sender: Contact, straight: bool = False) -> Judged:
        """Whether a run that this member was sent is new and proven; nothing is noted of it."""
        passed_on = not straight and (self.tree is None or self.tree.passes_on(sender.peer))
        return self._delivery.judge(self.topic, self.recent, run, sender.peer, passed_on)

    def _accept(
        self, run: Run, judged: Judged, hops: int, source: Contact | None, straight: bool = False
    ) -> Taken:
        """Take a run in: deliver and pass it on if it is new. Returns what became of it."""
        taken = self._take_in(judged, hops, source)
        if taken is Taken.NEW:
            if source is not None and source.peer == run.publisher:
                self._begin_tree(source.peer)
            if straight and self.tree is not None and source is not None:
                self.tree.push_straight(run, source.peer)
            else:
                self._scheme.push(run, hops, source.peer if source is not None else None)
            self._silence.note_event()
            if source is not None and isinstance(self._scheme, Spread):
                self._scheme.note_gap(run, source)
        return taken

    def _begin_tree(self, publisher: PeerId) -> None:
        """An event came from its publisher. If it is the first one of a small topic, the publisher
        reached most others as well, and announcements tell the rest."""
        if self.tree is not None and self.tree.is_untried and self._is_small:
            self.tree.begin_as_star(publisher)

    def _take_in(self, judged: Judged, hops: int, source: Contact | None) -> Taken:
        sender = source.peer if source is not None else None
        arrival = Arrival(self.topic, self.recent, hops, sender, source)
        taken = self._delivery.take_judged(arrival, judged)
        if taken is Taken.NEW:
            self._quiet = False
        return taken

    def on_route_event(self, sender: Contact, run: Run, judged: Judged) -> bool:
        """A publisher outside of the topic hands a run to this member. Returns whether it is taken:
        where history is kept, it may be refused."""
        self._accept(run, judged, 1, self._delivery.source(sender))
        return self.recent.has_taken(run)

    def on_pushed(
        self, sender: Contact, run: Run, judged: Judged, hops: int, straight: bool = False
    ) -> None:
        """A run came over a link, or a reference to one that is here already. Its sender believes
        in a link over which the tree goes, or pushes straight to all members."""
        if self.tree is not None and is_proven(judged) and sender.peer not in self.links.linked:
            self.links.adopt(sender)
        hops = min(hops, HOPS_MAX - 1)  # room for one more
        taken = self._accept(run, judged, hops, sender, straight)
        if taken is Taken.NEW:
            self._silence.hear(sender.peer)
            return
        self._hear_of(sender.peer, (run,))
        if taken in (Taken.COPY, Taken.OLD):
            note_copy(self._ctx, self.topic, run, sender.peer, hops)
        if self.tree is not None and not straight:
            self.tree.on_no_news(sender, run, taken)

    def _hear_of(self, peer: PeerId, named: Iterable[Run | Span]) -> None:
        """A neighbour pushed or announced these. They count as its contribution if one of them came
        here lately, from any peer; announced events that come later count then (`tree.py`)."""
        came_ms, is_news = self.recent.came_ms, self._silence.is_news
        for one in named:
            if is_news(came_ms(one.publisher, one.incarnation, one.last)):
                self._silence.hear(peer)
                return

    # --- repair ---------------------------------------------------------------------------------

    def compare(self, other: Contact, fingerprint: int, settle_ms: Millis) -> None:
        """Offer what is held here to a member that has seen something else."""
        if not self._is_beginning and recent.compare(
            self._ctx, self.topic, self.recent, other, fingerprint, settle_ms
        ):
            self._quiet = False

    @property
    def _is_beginning(self) -> bool:
        """Whether this peer does not know yet what was published before it subscribed, or whether
        that is wanted."""
        return self.entering or self._delivery.weighs_past(self.topic)

    def on_offer(self, sender: Contact, message: Offer) -> None:
        if message.first and not self._answered.offers(self.topic, sender.peer):
            return
        if not self._is_beginning:
            comes = self.tree.may_be_queued if self.tree is not None else _never
            recent.on_offer(self._ctx, self.recent, sender, message, comes)

    def on_want(self, sender: Contact, message: Want | Graft) -> None:
        linked = sender.peer in self.links.linked
        may = self._answered.repairs(self.topic, sender.peer, linked)
        recent.on_want(self._ctx, self.recent, sender, message, may)

    def on_repair(self, sender: Contact, message: Repair) -> None:
        new = 0
        source = self._delivery.source(sender)
        for run in message.runs:
            taken = self._take_in(self.judge(run, sender), 0, source)
            if taken is Taken.FORGED:
                break  # the sender of a forgery is not worth further verifications
            if taken is Taken.NEW:
                new += 1
                self._silence.note_late_event()
                self._scheme.push_repaired(run, sender.peer)
            counted = "repaired" if taken is Taken.NEW else "repairs_duplicate"
            self._ctx.counters[counted] += len(run.payloads)
        if new and self.tree is not None and sender.peer not in self.links.linked:
            self.links.ask(sender, self.recent.fingerprint(), urgent=not self.links.linked)

    # --- messages of the tree, which travel over links -------------------------------------------

    def on_ihave(self, sender: Contact, message: IHave) -> None:
        """A member that keeps no tree (schemes may be mixed) asks at once for what it lacks."""
        self._hear_of(sender.peer, message.spans)
        if self.tree is None:
            if not self.entering:
                recent.ask_for(self._ctx, self.recent, sender, message)
        elif self.links.adopt(sender):
            self.tree.on_ihave(sender, message)

    def on_graft(self, sender: Contact, message: Graft) -> None:
        if self.tree is None:
            self.on_want(sender, message)
        elif self.links.adopt(sender):
            self.tree.on_graft(sender, message)

    def on_prune(self, sender: Contact, message: Prune) -> None:
        if self.tree is not None and self.links.adopt(sender):
            self.tree.on_prune(sender)

    def on_overdue(self, sender: Contact, message: Overdue) -> None:
        if self.tree is not None and self.links.adopt(sender):
            self.tree.on_overdue(sender, message)

    def on_passed(self, sender: Contact, message: Passed) -> None:
        if self.tree is not None:
            self.tree.on_passed(sender, message)

    def on_missing_timer(self, serial: int) -> None:
        """Events that should have come by now may be asked for."""
        self._scheme.on_missing_timer(serial)
        self._shun(self._silence.liars())

    def on_far_behind(self, far: bool) -> None:
        """This member reads the stream's past, and has far to go; or it is nearly level."""
        if self.tree is not None:
            self.tree.on_far_behind(far)

    def on_behind(self, sender: Contact, message: Behind) -> None:
        if self.tree is not None and self.links.adopt(sender):
            self.tree.on_behind(sender, message)

    def on_level(self, sender: Contact, message: Level) -> None:
        """Pass over events published while this member read the past: its pages bring them."""
        if self.tree is not None and self.tree.expects_level(sender.peer):
            self._delivery.skip_to(self.recent, message.seen)

    # --- links ----------------------------------------------------------------------------------

    def maintain_links(self) -> None:
        if self.scheme == "tree" and self.links.room():
            ranked = self._ctx.config.stan.enabled
            candidates = self._ranked() if ranked else self.view.known()
            self.links.maintain(candidates, self.recent.fingerprint(), ranked)

    def _ranked(self) -> list[Contact]:
        return self.stan.ranked([*self.view.contacts(), *self.links.linked.values()])

    def _carries(self, peer: PeerId) -> bool:
        return self.tree is not None and self.tree.carries(peer)

    def on_collect_reply(self, sender: Contact, message: CollectReply) -> None:
        if self.stan.on_reply(sender, message):
            self._quiet = False  # there is more to find: soon again

    def on_link_release(self, sender: Contact) -> None:
        moves = self._ctx.config.stan.enabled
        if not moves or self.tree is None or not self.tree.busy:
            self.links.on_release(sender, self._ranked() if moves else [], self._carries)

    @property
    def carriers(self) -> list[Contact]:
        """The members that this peer sends the topic's events to: its logical links."""
        if self.tree is not None:
            return list(self.links.linked.values())
        return self.stan.contacts() if self._ctx.config.stan.enabled else self.view.contacts()

    def on_link_reply(self, sender: Contact, message: LinkReply) -> None:
        self.links.on_reply(sender, message)
        self.maintain_links()  # if refused, ask the next one

    def link_up(self, contact: Contact, fingerprint: int) -> None:
        self._quiet = False
        self._silence.watch(contact.peer)
        self.stan.heard_from(contact.peer)
        if self.tree is not None:
            self.tree.link_up(contact)
        if self._ctx.me.peer < contact.peer:  # one end is enough
            self.compare(contact, fingerprint, 0)  # nothing is on its way over a new link

    def link_down(self, peer: PeerId) -> None:
        self._quiet = False
        self._silence.on_link_down(peer)
        if self.tree is not None:
            self.tree.link_down(peer)
        self.maintain_links()

    def _shun_silent(self) -> None:
        """Give up links that bring nothing, as long as there are others, or other members."""
        if self.tree is not None and self._ctx.config.defence.score:
            self._shun(self._silence.silent(list(self.tree.lazy), list(self.tree.eager)))
            self._shun(self._silence.liars())

    def _shun(self, peers: Iterable[PeerId]) -> None:
        if self.tree is None or not self._ctx.config.defence.score:
            return
        for peer in peers:
            if len(self.links.linked) > 1 or len(self.view) > 1:
                self.tree.part_with(peer)
                self.links.shun(peer)
                self.tree.forget_announcer(peer)

    def on_doubt(self, peer: PeerId) -> None:
        """A peer may be gone: ask others for links where it was asked."""
        self.links.on_doubt(peer)
        self.maintain_links()

    def lose(self, peer: PeerId, left: bool = False) -> None:
        """A peer cannot be reached, or has said that it `left` the topic."""
        if left:
            self.view.bury(peer)
        elif self.view.remove(peer) or peer in self.links.linked:
            self._lost.renew(peer, None)
        self.stan.lose(peer)
        if not self.links.lose(peer):
            self.maintain_links()

    # --- the overlay ----------------------------------------------------------------------------

    def news(self) -> OverlayNews:
        size, age_ms = self.size.to_share()
        return OverlayNews(self.overlay, size, age_ms, self.recent.fingerprint())

    def meet(self, news: OverlayNews) -> None:
        """Take over what a member of this topic told: the overlay's id and size."""
        theirs = OverlayId(news.overlay)
        if not tera.keeps_overlay(self.topic, self.overlay, theirs):
            self.overlay = theirs
            self._quiet = False
            self._ctx.counters["overlays_merged"] += 1
        self.size.hear(news.size, news.size_ms)

    def on_advert(self, sender: Contact, overlay: OverlayId) -> None:
        """A member advertises this topic: merge if its overlay is another one, or if it was out of
        reach. After a cut both sides have the overlay's id, and in a large topic full views."""
        is_back = sender.peer in self._lost
        self._lost.pop(sender.peer, None)
        if overlay != self.overlay or is_back:
            self._ctx.counters["partitions_found"] += 1
            self.exchange_with(sender)
        elif self.view.welcome(sender):
            self.maintain_links()

    def on_peer_back(self, contact: Contact, was_linked: bool) -> None:
        """A silent peer speaks again. If it is a member that this one lost, the overlay may have
        been cut between them; where events spread without links, only the lost one tells that. Both
        sides may have links enough of their own by now, so this one is asked for anew."""
        if contact.peer in self._lost or was_linked:
            self._lost.pop(contact.peer, None)
            self.exchange_with(contact)
        if was_linked:
            self.links.ask_again(contact, self.recent.fingerprint())

    def on_hint(self, sender: Contact, message: Hint) -> None:
        """A third peer has heard of two overlays of this topic."""
        if message.overlay == self.overlay:
            return
        if self.view.informants.may_send(sender, message.member):
            self._ctx.counters["partitions_found"] += 1
            self.exchange_with(message.member)

    def exchange_with(self, contact: Contact) -> None:
        self._quiet = False
        self.view.exchange_with(contact, self.news())

    def on_shuffle_request(self, sender: Contact, message: ShuffleRequest) -> None:
        self.view.on_request(sender, message, self.news())
        self.meet(message.news)
        self.compare(sender, message.news.recent, self._ctx.config.dissemination.settle_ms)
        self.maintain_links()

    def on_shuffle_reply(self, sender: Contact, message: ShuffleReply) -> None:
        before = tuple(self.view.peers)
        if not message.member:
            self.lose(sender.peer, left=True)
        elif self.view.on_reply(sender, message):
            self.size.compare(before, message.descriptors)
            self.meet(message.news)
            if message.news.recent != self.recent.fingerprint():
                self._quiet = False  # its offer is on the way; if that is lost, ask again soon
            self.stan.fill()
            self.maintain_links()

    def on_join_request(self, sender: Contact, message: JoinRequest) -> None:
        told = self._answered.tells(self.topic, sender.peer)
        self.view.on_join_request(sender, self.news(), self.recent.seen() if told else [])
        self.maintain_links()

    def on_join_walk(self, sender: Contact, message: JoinWalk) -> None:
        self.view.on_join_walk(sender, message, self.news())

    def on_join_reply(self, sender: Contact, message: JoinReply, fresh: bool) -> None:
        """Entered the overlay; few fresh subscribers want what was published before."""
        if fresh:
            self._delivery.enter_after(self.topic, self.recent, message.seen, sender)
        self.view.on_join_reply(sender, message)
        self.view.welcome(sender)
        self.meet(message.news)
        if self._ctx.config.stan.enabled and self._ctx.config.stan.period_ms:
            self.stan.follow(self.popularity)
        self.maintain_links()

    def on_entered(self) -> None:
        """The subscription was answered."""
        self.entering = False

    def seek_if_alone(self) -> bool:
        """The peer got into the network: a member that knows no other looks for one often."""
        if self.alone:
            self._alone_period = 1
        return self.alone

    def run_cycle(self) -> int:
        """Do what is due in this cycle; returns in how many cycles the next turn is."""
        self.recent.purge(self._ctx.now)
        longest = self._ctx.config.cyclon.stable_period_max
        if self.alone:
            pause = self._alone_period
            self._alone_period = min(2 * pause, 4 * longest)
            return pause
        self._alone_period = 1
        if not self.view.peers:
            for contact in self.links.linked.values():
                self.view.add(contact)
        self._period = tera.next_period(self._period, not self._quiet, longest)
        self._quiet = True
        self.view.exchange(self.news(), [])
        self.stan.run_cycle(self.popularity, self.links.linked)
        self._shun_silent()
        self.maintain_links()
        if self.tree is not None and self._ctx.config.stan.enabled and not self.tree.busy:
            self.links.improve(self._ranked(), self.recent.fingerprint(), self._carries)
        self.size.run_cycle(len(self.links.linked))
        return self._period

    def leave(self) -> None:
        """Say goodbye to the members that send this peer events."""
        self.stan.leave()
        told = dict(self.links.linked)
        if self.tree is None:
            told.update((contact.peer, contact) for contact in self.view.contacts())
        self.links.close()
        for contact in told.values():
            self._ctx.send(contact, LeaveNotice(self.topic))

    # --- looking at it --------------------------------------------------------------------------

    def status(self, uses: Mapping[PeerId, int]) -> dict[str, object]:
        """What a user wants to see, ready for JSON. `uses`: in how many topics this peer sends
        events to each other one."""
        carriers = self.carriers
        return {
            "overlay": f"{self.overlay:016x}",
            "scheme": self.scheme,
            "members_estimate": self.popularity,
            "view": [peer_text(peer) for peer in self.view.peers],
            "links": [peer_text(peer) for peer in self.links.linked],
            "ranked": [peer_text(peer) for peer in self.stan.entries],
            "walks": self.stan.waiting,
            "logical_links": len(carriers),
            "shared_links": sum(uses[contact.peer] > 1 for contact in carriers),
            "eager": [peer_text(peer) for peer in self.tree.eager] if self.tree else [],
            "recent_events": len(self.recent),
            "recent_evicted": self.recent.evicted,
            "recent_disproven": self.recent.disproven,
        }


def _never(span: Span) -> bool:
    """Whether events are queued on a tree's link: there is no tree."""
    return False


def _fanout(ctx: Context, scheme: Scheme) -> int | None:
    """How many neighbours an event is sent on to outside of trees; None: to the whole view."""
    config, view = ctx.config, ctx.config.cyclon.view_size
    if scheme == "gossip":
        usual = config.dissemination.gossip_fanout
        return scaled(usual, config.capacity, FANOUT_LEAST, view)
    return scaled(view, config.capacity, FANOUT_LEAST, view) if config.capacity < 1 else None
