"""What a run is asked for, and the settings of the peers that play it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TypeAlias

from weft.protocol import seam
from weft.protocol.config import Config, Dissemination, History, Routing
from weft.protocol.topic_dht import roles as topic_dht
from weft.sim.faults import Timeline
from weft.sim.workload import HIERARCHY

AnyScheme: TypeAlias = seam.Scheme | topic_dht.Scheme

SCHEMES: dict[Routing, tuple[AnyScheme, ...]] = {
    "tera": seam.SCHEMES,
    "topic-dht": topic_dht.SCHEMES,
    "pulsarcast": (),
    "flood": (),
}
"""How events may spread within a topic, where a routing leaves a choice."""


@dataclass(frozen=True)
class Settings:
    """What a run is asked for; everything else follows from the seed."""

    seed: int
    peers: int = 25
    topics: int = 8
    events: int = 120
    scheme: AnyScheme | None = None  # None: the routing's usual one
    routing: Routing = "tera"
    calm: bool = False  # no faults at all
    history: bool = False  # events are signed and stay; stores survive crashes
    hierarchy: bool = False  # topics lie above one another; half of them in a hierarchy

    def __post_init__(self) -> None:
        if self.peers < 3:
            raise ValueError("a simulated network needs at least 3 peers")
        if self.topics < 1:
            raise ValueError("there must be at least 1 topic")
        if self.events < 0:
            raise ValueError("the number of events cannot be negative")
        known = SCHEMES[self.routing]
        if self.scheme is not None and self.scheme not in known:
            choice = f"there are {', '.join(known)}" if known else "there is none to choose"
            raise ValueError(f"no scheme {self.scheme} with the routing {self.routing}: {choice}")

    @property
    def scheme_used(self) -> AnyScheme | None:
        """The scheme asked for, or the usual one; None where there is no choice."""
        usual: dict[Routing, AnyScheme] = {
            "tera": Dissemination().scheme,
            "topic-dht": topic_dht.Config().scheme,
        }
        return self.scheme or usual.get(self.routing)

    def command(self) -> str:
        """The command that plays this run again."""
        words = [
            f"./weft sim --seed {self.seed} --peers {self.peers} --topics {self.topics}",
            f"--events {self.events}",
        ]
        return " ".join(
            words
            + [f"--scheme {self.scheme_used}"] * (self.scheme_used is not None)
            + [f"--routing {self.routing}"] * (self.routing != "tera")
            + ["--calm"] * self.calm
            + ["--history"] * self.history
            + ["--hierarchy"] * self.hierarchy
        )


def make_config(settings: Settings, timeline: Timeline, tracing: bool) -> Config:
    """The default settings of a peer, but for the scheme and one more.

    Events are held for repair for as long as the run lasts: what a peer promises to repair ends
    with `recent_ms`, and it is that promise which is judged.
    """
    usual = Config()
    spread = replace(usual.dissemination, recent_ms=timeline.end_ms)
    located = usual.topic_dht
    # `Settings` has made sure that the scheme is one of the routing's.
    if settings.scheme is not None and settings.routing == "tera":
        spread = replace(spread, scheme=settings.scheme)  # type: ignore[arg-type]
    elif settings.scheme is not None:
        located = replace(located, scheme=settings.scheme)  # type: ignore[arg-type]
    return replace(
        usual,
        routing=settings.routing,
        topic_dht=located,
        dissemination=spread,
        history=History(enabled=settings.history),
        hierarchies=(HIERARCHY,) if settings.hierarchy else (),
        trace=tracing,
    )
