"""Scamp: membership whose views find their own size (Ganesh, Kermarrec, Massoulié, "Peer-to-peer
membership management for gossip-based protocols", IEEE Transactions on Computers 52(2), 2003).

A newcomer knows one member, its contact, and begins with a view of that one alone. The contact
sends its subscription on: a copy to each member of its own view, and c more to members of it drawn
at random (Algorithm 1). A member that gets a copy keeps the newcomer with probability 1/(1 + its
view's size), else it sends the copy on to a random member of its view (Algorithm 2). A subscription
adds as many links as the contact has, c, and the newcomer's own, so that a view has (c+1)·ln n
members on average, while nobody knows n.

A member that leaves has those that hold it, its in-view, replace it by members of its own view, all
but c+1 of them, which drop it: as many links go as a subscription brings (Section 2.3). A
subscription lasts for a lease; when it ends, holders drop the member, which subscribes once more
through a random member of its view and keeps that view (Section 2.4). That balances the graph anew,
and forgets those that left without a word. A member whose view has become empty subscribes again.

Departures:
- Deviation: the contact is drawn from all members. Section 2.4's indirection sends a newcomer's
  request on until it is about at a random member, which is what this is in the end.
- Deviation: a renewal sends no further copies. With c of them each lease would add c links, and
  views would grow with time instead of with n.
- Deviation: a view has room for four times its mean and 16 more, and a full one keeps nobody. None
  was ever seen full.
- Deviation: a contact with an empty view, which only the first member has, keeps the newcomer.
"""

from __future__ import annotations

import math

EXTRA = 1
"""guess: c, the copies beyond the contact's view. With 1, views of 100 members are as large as
those that connect random overlays with probability 0.99 (`view_size` in `weft.rules.stan`)."""
HOPS_MAX = 64
"""guess: a copy that nobody kept in so many hops is dropped. In a group as small as its views all
may hold the newcomer, and a copy would wander for ever."""


def mean_view(members: int, extra: int) -> float:
    """How large views are on average in a group of `members` (Section 3): (c+1)·ln n."""
    return (extra + 1) * math.log(members) if members > 1 else 0.0


def room(members: int, extra: int) -> int:
    """The most that a view may hold."""
    return min(members - 1, round(4 * mean_view(members, extra)) + 16)


def copies(view: int, extra: int) -> int:
    """How many copies of a subscription a contact with a view of this size sends on."""
    return view + extra


def first_slot(copy: int, view: int, drawn: int) -> int:
    """The slot of the contact's view that a copy is sent to: each has one, and the copies beyond go
    where they are drawn to."""
    return copy if copy < view else drawn


def one_in(view: int) -> int:
    """The inverse of the chance with which a member with a view of this size keeps a newcomer."""
    return 1 + view


def is_given_up(hops: int) -> bool:
    """Whether a copy that was sent on `hops` times is dropped."""
    return hops >= HOPS_MAX


def is_replaced(place: int, holders: int, extra: int) -> bool:
    """Whether the holder at this place of a leaver's in-view takes another member in its place; the
    last c+1 only drop it."""
    return place < holders - extra - 1


def replacement(place: int, view: int) -> int:
    """The slot of the leaver's view that a holder's replacement comes from: one after the other,
    and from the first again."""
    return place % view


def is_isolated(view: int) -> bool:
    """Whether a member with a view of this size must subscribe again."""
    return view == 0
