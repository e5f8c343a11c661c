"""What members of a tree tell each other of the levels around them, and upper layers of links.

A parent names to its children, every cycle and whenever it changes, the way up to the root, the
rendezvous, and some subscribers near by. That is what repair starts from, and whom history asks.
What is near by flows down from live links only, so whoever is gone is soon named by nobody.
"""

from __future__ import annotations

from weft.ids import Contact, PeerId
from weft.protocol.context import Context, LinkDown, LinkUp, MemberMet
from weft.protocol.messages_pulsar import (
    AGE_MAX,
    FAMILY_MAX,
    PATH_WIRE_MAX,
    RendezvousSync,
    TreeFamily,
)
from weft.protocol.pulsar.branch import Branch
from weft.rules.draw import stream_of
from weft.rules.multicast import push_down

_SIBLINGS = stream_of("pulsar.siblings")
_SIBLINGS_TOLD = 8
"""guess: subscribers named to a child."""


def settle(ctx: Context, branch: Branch) -> None:
    """Tell upper layers which links came and went, so that they are watched."""
    links = branch.links()
    for peer in [peer for peer in branch.watched if peer not in links]:
        del branch.watched[peer]
        ctx.tell(LinkDown(branch.topic, peer))
    for peer, contact in links.items():
        if peer not in branch.watched:
            branch.watched[peer] = None
            ctx.tell(LinkUp(branch.topic, contact, 0))


def meet(ctx: Context, branch: Branch, contact: Contact) -> None:
    """Another subscriber is known now: history begins with it."""
    if branch.subscribed:
        ctx.tell(MemberMet(branch.topic, contact))


def tell_children(ctx: Context, branch: Branch, cycle: int, only: PeerId | None = None) -> None:
    """Send the family around this peer to its children, or to one of them."""
    if not branch.children:
        return
    around = branch.subscribers()
    above = [] if branch.parent is None else [branch.parent, *branch.path]
    if branch.rendezvous:
        roots = [ctx.me, *(fellow.contact for fellow in branch.fellows.values())]
    else:
        roots = list(branch.roots)
    for peer, child in branch.children.items():
        if only is not None and peer != only:
            continue
        others = [one for one in around.values() if one.peer != peer]
        key = ctx.next_key(_SIBLINGS)
        message = TreeFamily(
            branch.topic,
            branch.beat,
            min(max(0, cycle - branch.heard_cycle), AGE_MAX),
            branch.subscribed,
            above[:PATH_WIRE_MAX],
            roots[:FAMILY_MAX],
            push_down(others, key, _SIBLINGS_TOLD),
            branch.recent.fingerprint(),
        )
        ctx.send(child.contact, message)


def sync_of(branch: Branch, answer: bool) -> RendezvousSync:
    """What a rendezvous tells the others."""
    members = [child.contact for child in branch.children.values() if child.subscribed]
    return RendezvousSync(
        branch.topic,
        branch.beat,
        branch.subscribed,
        len(branch.children),
        [fellow.contact for fellow in branch.fellows.values()][:FAMILY_MAX],
        members[:FAMILY_MAX],
        answer,
        branch.recent.fingerprint(),
    )
