"""Which routing a peer has, by its settings; and what it says to peers that route otherwise."""

from __future__ import annotations

from weft.protocol import flood
from weft.protocol.context import Context
from weft.protocol.cyclon import Cyclon
from weft.protocol.flood import Flood
from weft.protocol.kademlia.kademlia import Kademlia
from weft.protocol.liveness import Liveness
from weft.protocol.pulsar import pulsar
from weft.protocol.pulsar.pulsar import Pulsar
from weft.protocol.routing import Handlers, Routing
from weft.protocol.tera import refusing as tera_refusing
from weft.protocol.tera.tera import Tera
from weft.protocol.topic_dht import routing as topic_dht
from weft.protocol.topic_dht.routing import TopicRouting


def make(ctx: Context, general: Cyclon, liveness: Liveness, dht: Kademlia | None) -> Routing:
    chosen = ctx.config.routing
    if chosen == "pulsarcast" and dht is not None:
        return Pulsar(ctx, dht, liveness)
    if chosen == "topic-dht" and dht is not None:
        return TopicRouting(ctx, dht)
    if chosen == "flood":
        return Flood(ctx, general)
    return Tera(ctx, general, liveness)


def handlers(ctx: Context, routing: Routing) -> Handlers:
    """Messages of all routings: its own by the routing, others are refused."""
    return {
        **tera_refusing.refusals(ctx),
        **pulsar.refusals(ctx),
        **topic_dht.refusals(ctx),
        **flood.refusals(ctx),
        **routing.handlers(),
    }
