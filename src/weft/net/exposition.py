"""A peer's counters, gauges and histograms in Prometheus' words, by its own client library.

Counters have flat names, with reasons in them (`history_refused_bad_signature`): that is cheap to
count and to read in a status. Here the reasons become labels of one metric, so that a dashboard can
add them up and a new reason needs no new panel. Every metric has a help text: those below, or for
the protocol's own counters one made of the name.

Needs the package `prometheus_client` (the extra `web`), so it is imported when metrics are asked
for.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Protocol

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector


class Histogram(Protocol):
    """How often a quantity was within which bounds."""

    total: float  # of all values

    def cumulated(self) -> Sequence[tuple[str, float]]:
        """For each bound, how many values were not above it."""


LABELLED = {
    "net_fault_": ("net_faults", ("kind",)),
    "net_dials_for_": ("net_dials_for_message", ("message",)),
    "net_dropped_event_": ("net_dropped_messages", ("carries", "reason")),
    "net_dropped_control_": ("net_dropped_messages", ("carries", "reason")),
    "history_refused_": ("history_refused", ("reason",)),
}
"""Beginnings of counters' names, the metric that they belong to, and the labels that the rest of
the name is; of two labels, the first is what stands before the rest."""

HELP = {
    "access_points": "Access points to other topics that this peer knows",
    "delivery_seconds": "From publishing, by the publisher's clock, until an event is delivered",
    "equivocations": "Publishers found to have signed two different things under one number",
    "forged": "Runs of events refused because their signature is not their publisher's",
    "history_given_up": "Events looked for that no peer had any more",
    "history_pruned": "Events dropped by retention",
    "history_refused": "Blocks refused, by reason",
    "isolated": "1 while this peer knows no other",
    "links_least": "Links in the topic that has the fewest",
    "links_logical": "Links over all topics",
    "links_physical": "Peers that the links of all topics go to",
    "links_ranked_logical": "Entries over all topics of the views that StaN ranks",
    "links_ranked_physical": "Peers in the views that StaN ranks",
    "net_accepts": "Connections that others made",
    "net_bytes_received": "Bytes received, after TLS",
    "net_bytes_sent": "Bytes sent, before TLS",
    "net_connections": "Open connections",
    "net_connections_held": "Open connections that are kept, for links",
    "net_delivered": "Notifications handed to subscriptions",
    "net_dials": "Connections that this peer tried to make",
    "net_dials_for_message": "Connections that this peer tried to make, by their message",
    "net_dials_in_progress": "Connections that are being made",
    "net_dropped_messages": "Messages that did not leave, by what they carried and why",
    "net_events_dropped": "Messages with events that did not leave",
    "net_evictions": "Connections closed to make room for others",
    "net_faults": "Connections that ended by a fault, by its kind",
    "net_frames_received": "Messages received",
    "net_frames_sent": "Messages sent",
    "net_handler_errors": "Defects in weft that a message or a timer met",
    "net_handshakes_in_progress": "Handshakes of callers that are not finished",
    "net_idle_closes": "Connections closed because nothing used them",
    "net_key_clashes": "Times another process was found to use this peer's key",
    "net_notifications_dropped": "Notifications that an application did not take in time",
    "net_opened": "Connections that came to be, from either side",
    "net_publish_waits_queue": "Publishes that waited for room in a queue",
    "net_publish_waits_window": "Publishes from outside of a topic that waited for an answer",
    "net_queued_bytes": "Bytes that wait to be sent",
    "net_reads_held": "Times a connection was not read, as its events found a full queue",
    "net_store_errors": "Batches of events that could not be made durable",
    "net_unfinished_bytes": "Bytes of messages that have not been received whole",
    "net_writes": "Writes to sockets",
    "payload_bytes": "Sizes of delivered payloads",
    "subscriptions": "Topics that this peer is subscribed to",
    "view_size": "Peers in the view of the general overlay",
}


class Exposition(Collector):
    """The metrics of one peer at one moment."""

    def __init__(
        self,
        counters: Mapping[str, int],
        gauges: Mapping[str, float],
        histograms: Mapping[str, Histogram],
        labels: Mapping[str, str],
    ) -> None:
        self._counters = counters
        self._gauges = gauges
        self._histograms = histograms
        self._names = list(labels)
        self._values = list(labels.values())

    def text(self) -> str:
        registry = CollectorRegistry(auto_describe=False)
        registry.register(self)
        return generate_latest(registry).decode()

    def collect(self) -> Iterator[Metric]:
        yield from self._counted()
        for name, value in self._gauges.items():
            gauge = GaugeMetricFamily(_full(name), _help(name), labels=self._names)
            gauge.add_metric(self._values, value)
            yield gauge
        for name, histogram in self._histograms.items():
            family = HistogramMetricFamily(_full(name), _help(name), labels=self._names)
            family.add_metric(self._values, histogram.cumulated(), histogram.total)
            yield family

    def _counted(self) -> Iterable[Metric]:
        families = {name: self._family(name, labels) for name, labels in LABELLED.values()}
        for counter, value in self._counters.items():
            name, labels, values = labelled(counter)
            if name not in families:
                families[name] = self._family(name, labels)
            families[name].add_metric([*self._values, *values], value)
        return families.values()

    def _family(self, name: str, labels: Iterable[str]) -> CounterMetricFamily:
        return CounterMetricFamily(_full(name), _help(name), labels=[*self._names, *labels])


def labelled(counter: str) -> tuple[str, tuple[str, ...], tuple[str, ...]]:
    """The metric of a counter, with the names and the values of its labels."""
    for start, (name, labels) in LABELLED.items():
        if counter.startswith(start):
            rest = counter.removeprefix(start)
            first = start.rstrip("_").rpartition("_")[2]
            return name, labels, (first, rest) if len(labels) == 2 else (rest,)
    return counter, (), ()


def _help(name: str) -> str:
    known = HELP.get(name)
    return known or f"Counted by the protocol: {name.replace('_', ' ')}"


def _full(name: str) -> str:
    clean = "".join(letter if letter.isascii() and letter.isalnum() else "_" for letter in name)
    return f"weft_{clean}"
