"""A defect that an experiment plants in what it runs, to see that its verdict notices.

An experiment names the defects that its claim should notice: a step of the protocol left out, a
draw biased, a message lost, a table halved. A defect says which function or class it replaces, and
by what. It is planted where a task runs and taken out again when the task ends; the code that is
tested knows nothing of it, and the parameters that rows are stored and measured with stay those of
the experiment.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from importlib import import_module
from typing import TYPE_CHECKING, Any, TypeAlias

if TYPE_CHECKING:
    from weft.ids import Contact
    from weft.protocol.wire import Message
    from weft.sim.node import Node
    from weft.sim.world import World

Function: TypeAlias = Callable[..., Any]
"""What stands in a place, with whatever arguments it takes there."""
Instead: TypeAlias = Callable[[Any], object]
"""From what stands in a place to what is to stand there."""


def everywhere(params: Mapping[str, object]) -> bool:
    return True


@dataclass(frozen=True)
class Defect:
    """What is wrong, in a few words, and how it is brought about."""

    name: str
    instead: Mapping[str, Instead] = field(default_factory=dict)  # "module:Class.name" → what
    params: Mapping[str, object] = field(default_factory=dict)  # that the simulation is run with
    where: Callable[[Mapping[str, Any]], bool] = everywhere
    """The points that it is run at: those that the measures it should move are made of."""

    @property
    def slug(self) -> str:
        """The name as one of a folder."""
        return re.sub(r"[^a-z0-9]+", "-", self.name.lower()).strip("-")


@contextmanager
def planted(defect: Defect | None) -> Iterator[None]:
    """With the defect in its places; they are as they were afterwards."""
    with ExitStack() as stack:
        for place, instead in defect.instead.items() if defect else ():
            holder, name = _found(place)
            stack.callback(setattr, holder, name, vars(holder)[name])
            setattr(holder, name, instead(getattr(holder, name)))
        yield


def _found(place: str) -> tuple[object, str]:
    """The module or class that holds what a place names, and its name there."""
    module, _, path = place.partition(":")
    *classes, name = path.split(".")
    holder: object = import_module(module)
    for each in classes:
        holder = getattr(holder, each)
    if name not in vars(holder):
        raise AttributeError(f"{place}: there is no such place")
    return holder, name


# --- usual defects ------------------------------------------------------------------------------


def given(**changed: object) -> Instead:
    """A function, or a class, that is always called with these arguments by name."""

    def instead(original: Function) -> Function:
        return lambda *args, **named: original(*args, **{**named, **changed})

    return instead


def left_out(original: Function) -> Function:
    """A step that does nothing; where a number of messages is expected, none."""
    return lambda *args, **named: 0


def always(value: object) -> Instead:
    """A function that gives the same whatever it is asked: a check that lets all pass."""
    return lambda _: lambda *args, **named: value


# --- of simulated peers ---------------------------------------------------------------------------

SEND, ARRIVE = "weft.sim.world:World._send", "weft.sim.world:World._push"
"""Where a simulated peer's messages go out, and where they are put on their way to be handled."""


def kind_of(fact: object) -> str:
    """What kind of message a fact brings, if it brings one."""
    return type(getattr(fact, "message", None)).__name__


def lost(*kinds: str, one_in: int = 1) -> dict[str, Instead]:
    """Messages of these kinds are lost, one in so many of them."""

    def instead(push: Function) -> Function:
        def pushed(world: World, time_ms: int, node: Node, fact: object) -> None:
            if kind_of(fact) not in kinds or (time_ms + node.index) % one_in:
                push(world, time_ms, node, fact)

        return pushed

    return {ARRIVE: instead}


def not_repaired(*kinds: str, one_in: int) -> dict[str, Instead]:
    """Copies of these kinds are lost, one in so many, and so is all that would make up for it."""
    copies = lost(*kinds, one_in=one_in)[ARRIVE]
    repair = lost("Repair", "Want", "IHave", "Offer", "BlocksReply", "PageReply")[ARRIVE]
    return {ARRIVE: lambda push: repair(copies(push))}


def late(*kinds: str, by_ms: int, after_ms: int = 0) -> dict[str, Instead]:
    """Messages of these kinds take so much longer, once so much time has passed."""

    def instead(push: Function) -> Function:
        def pushed(world: World, time_ms: int, node: Node, fact: object) -> None:
            slow = kind_of(fact) in kinds and time_ms >= after_ms
            push(world, time_ms + by_ms * slow, node, fact)

        return pushed

    return {ARRIVE: instead}


Finds: TypeAlias = "Callable[[World, Contact, Message], Contact | None]"
"""The peer that a message is sent to as well, from the one that it is sent to."""


def sent_also(*kinds: str, to: Finds, one_in: int = 1) -> dict[str, Instead]:
    """Messages of these kinds are sent once more, one in so many."""

    def instead(send: Function) -> Function:
        def sent(world: World, node: Node, contact: Contact, message: Message) -> None:
            send(world, node, contact, message)
            if type(message).__name__ in kinds and (world.now_ms + node.index) % one_in == 0:
                other = to(world, contact, message)
                if other is not None:
                    send(world, node, other, message)

        return sent

    return {SEND: instead}


def again(world: World, contact: Contact, message: Message) -> Contact | None:
    """To the same peer, a second time."""
    return contact


def to_a_stranger(world: World, contact: Contact, message: Message) -> Contact | None:
    """To a peer that is up and not in the message's topic; requests of the DHT name it as role."""
    topic = getattr(message, "topic", getattr(message, "role", None))
    outside = (
        node.contact
        for node in world.nodes
        if node.machine is not None and topic not in world.record.topics_of(node.index)
    )
    return next(outside, None)


def _each_delivery_twice(carry_out: Function) -> Function:
    def instead(world: World, node: Node, effect: object) -> None:
        carry_out(world, node, effect)
        if type(effect).__name__ == "Deliver":
            carry_out(world, node, effect)

    return instead


handed_twice: dict[str, Instead] = {"weft.sim.world:World._carry_out_rarer": _each_delivery_twice}
"""Every event is handed to the application twice."""
