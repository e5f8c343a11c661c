"""A peer's counters, gauges and histograms in Prometheus' words, by its own client library.

Counters have flat names, with reasons in them (`history_refused_bad_signature`): that is cheap to
count and to read in a status. Here the reasons become labels of one metric, so that a dashboard can
add them up and a new reason needs no new panel. Every metric has a help text.

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
    """A histogram as this module reads it; `metrics.Histogram` is one."""

    total: float  # of all values

    def cumulated(self) -> Sequence[tuple[str, float]]:
        """For each bound, how many values were not above it."""


LABELLED = {
    "net_fault_": ("net_faults", ("kind",)),
    "net_dials_for_": ("net_dials_for_message", ("message",)),
    "net_dropped_event_": ("net_dropped_messages", ("carries", "reason")),
    "net_dropped_control_": ("net_dropped_messages", ("carries", "reason")),
    "history_refused_": ("history_refused", ("reason",)),
    "dht_store_": ("dht_store", ("verdict",)),
}
"""By the beginning of a counter's name: the metric that the counter belongs to, and its labels. The
rest of the name is the value of the label; of two labels, the first has the last word of the
beginning."""

HELP = {
    "access_points": "Access points to other topics that this peer knows",
    "access_points_stale": "Access points that took no event or newcomer in time, or were lost",
    "agains_received": "Notes that an event received before was also published in another topic",
    "answers_refused": "Long answers kept back from peers that had had their share",
    "confirm_foreign": "Questions about events that are not the asker's own, left unanswered",
    "delivery_seconds": "From publishing, by the publisher's clock, until an event is delivered",
    "dht_disbelieved": "Peers whose answers a lookup dropped, as they proved wrong",
    "dht_lookup_hops": "Hops that finished lookups of the DHT took, over all of them",
    "dht_lookup_requests": "Requests that finished lookups of the DHT sent, over all of them",
    "dht_lookups": "Lookups of the DHT that were finished",
    "dht_probes": "Checks whether a peer in a routing table is still there",
    "dht_provided_dropped": "Keys that this peer stopped providing, as it provides too many",
    "dht_providers_evicted": "Providers forgotten to make room for others",
    "dht_refused_busy": "Lookups refused because too many waited",
    "dht_republished": "Values that were stored anew at the peers closest to them",
    "dht_requests": "Requests of the DHT that were sent",
    "dht_requests_failed": "Requests of the DHT that were not answered",
    "dht_store": "Values that others wanted stored here, by verdict",
    "dht_values_evicted": "Values dropped for others that are closer to this peer",
    "dht_values_refused": "Values in answers that are not valid for their key",
    "duplicates": "Copies of events that had come before",
    "early": "Events that came before an earlier one of their publisher, and waited for it",
    "equivocations": "Publishers found to have signed two different things under one number",
    "exchanges_put_off": "Exchanges of views put off while an answer is on a slow link",
    "exchanges_unanswered": "Exchanges of views that were not answered in time",
    "forged": "Runs of events refused because their signature is not their publisher's",
    "grafts_sent": "Links that were put back into a tree, to get missing events",
    "hints_sent": "Times two overlays of one topic were told of each other",
    "history_before": "Events from before the beginning of a subscription, not kept",
    "history_blocks_served": "Blocks sent to peers that asked for them",
    "history_caught_up": "Times this peer had read all that another member has of a topic",
    "history_gaps": "Events that others link to and this peer lacked",
    "history_given_up": "Events looked for that no peer had any more",
    "history_got": "Missing events that were found in the DHT under their own CIDs",
    "history_hearsay": "Events that only another peer had named, and that nobody had",
    "history_held_dropped": "Events dropped while they waited for a version of their topic",
    "history_late": "Events that came after events that are newer",
    "history_left_to_pages": "Pushed events left aside, because reading the past brings them",
    "history_no_room": "Events refused because too many waited for their parents",
    "history_not_served": "Requests for stored events refused, as too many waited",
    "history_off": "Messages about history that came although this peer keeps none",
    "history_paced": "Requests for stored events that were answered later, to save work",
    "history_pages_astray": "Pages of stored events that came twice or out of order",
    "history_plain": "Events of publishers that keep no history, passed on without being stored",
    "history_provided": "Segments of topics that this peer told the DHT it provides",
    "history_pruned": "Events dropped by retention",
    "history_put": "Small events of this peer's own that it stored in the DHT",
    "history_records_renewed": "Topic records signed anew before they expire",
    "history_refused": "Blocks refused, by reason",
    "history_sources_failed": "Members that sent no stored events when asked, or unusable ones",
    "history_store_failed": "Events that could not be made durable",
    "history_unasked": "Answers about history that this peer had not asked for",
    "history_versions_adopted": "Newer versions of topics that this peer goes by now",
    "history_versions_beside": "Versions of topics that another owner made at the same time",
    "history_versions_merged": "Versions of topics made here to merge versions made at one time",
    "history_wants_refused": "Missing events not looked for, as too many others were",
    "hits_avoided": "Access points named to a search that had asked for others",
    "isolated": "1 while this peer knows no other",
    "links_least": "Links in the topic that has the fewest",
    "links_logical": "Links over all topics",
    "links_physical": "Peers that the links of all topics go to",
    "links_ranked_logical": "Entries over all topics of the views that StaN ranks",
    "links_ranked_physical": "Peers in the views that StaN ranks",
    "links_released": "Links given up to a peer that asked for one",
    "links_shunned": "Links given up because the member brought nothing",
    "lookups": "Searches for subscribers of a topic",
    "lookups_empty": "Searches for subscribers of a topic that found none",
    "losses_asked": "Times missing events were asked of the last member that announced them",
    "members_refused": "Words of subscribers that came more often than a neighbour may bring them",
    "missing_forgotten": "Announced events not waited for, as too many others were",
    "missing_passed": "Events of a publisher not waited for any longer, so that later ones pass",
    "names_refused": "Messages kept back from peers that others had named too many of",
    "names_silent": "Peers that never answered, counted against the peers that named them",
    "net_accepts": "Connections that others made",
    "net_bytes_received": "Bytes received, after TLS",
    "net_bytes_sent": "Bytes sent, before TLS",
    "net_connections": "Open connections",
    "net_connections_held": "Open connections that are kept, for links",
    "net_delivered": "Notifications handed to subscriptions",
    "net_dials": "Connections that this peer tried to make",
    "net_dials_for_message": "Connections that this peer tried to make, by the message to send",
    "net_dials_in_progress": "Connections that are being made",
    "net_dropped_messages": "Messages that did not leave, by what they carried and why",
    "net_events_dropped": "Messages with events that did not leave",
    "net_evictions": "Connections closed to make room for others",
    "net_faults": "Connections that ended by a fault, by its kind",
    "net_frames_received": "Messages received",
    "net_frames_sent": "Messages sent",
    "net_handler_errors": "Messages and timers that failed by a defect in weft; see the log",
    "net_handshakes_in_progress": "Handshakes of callers that are not finished",
    "net_idle_closes": "Connections closed because nothing used them",
    "net_key_clashes": "Times another process was found to use this peer's key",
    "net_notifications_dropped": "Notifications that an application did not take in time",
    "net_opened": "Connections that were opened, by either side",
    "net_publish_waits_queue": "Publishes that waited for room in a queue",
    "net_publish_waits_window": "Publishes without a subscription that waited for an answer",
    "net_queued_bytes": "Bytes that wait to be sent",
    "net_reads_held": "Times a connection was not read, as its events found a full queue",
    "net_store_errors": "Batches of events that could not be made durable",
    "net_unfinished_bytes": "Bytes of messages that have not been received whole",
    "net_writes": "Writes to sockets",
    "not_subscribed": "Messages about a topic that this peer is not subscribed to",
    "overlays_merged": "Times this peer took over the id of another overlay of its topic",
    "parasites": "Events of topics that this peer is not subscribed to",
    "partitions_found": "Times another overlay of a topic was met, or a lost member of it",
    "payload_bytes": "Sizes of delivered payloads",
    "payloads_received": "Events that came over links, including copies",
    "peers_silent": "Peers given up because they did not answer pings",
    "published": "Events that this peer has published",
    "publishes_refused": "Publishes without a subscription refused, as too many waited",
    "refused_by_name": "Runs of events refused because of the name of their topic",
    "rejoins": "Times this peer asked peers that it knew before to let it join again",
    "repaired": "Missing events that came when this peer asked for them",
    "repairs_duplicate": "Events that this peer had asked for and that had come meanwhile",
    "routed_received": "Events that publishers without a subscription handed to this peer",
    "runs_received": "Messages that brought events",
    "size_estimates": "Estimates of how many peers there are",
    "sizes_refused": "Other members' estimates of a topic's size that cannot be",
    "stan_adopted": "Neighbours taken in because nobody else could find them",
    "stan_lonely": "Periods in which this peer could be found by too few others",
    "stan_neighbours_silent": "Neighbours given up because they did not answer walks",
    "subscriptions": "Topics that this peer is subscribed to",
    "topic_dht_aborted": "Changes of role that others refused, or did not answer in time",
    "topic_dht_aborts": "Changes of role of others that this peer refused",
    "topic_dht_demotions": "Times this peer stopped being a forwarder of a topic",
    "topic_dht_given_up": "Changes of role that took too long",
    "topic_dht_joins_aborted": "Attempts to join a topic that its forwarder did not accept",
    "topic_dht_messages": "Messages sent to keep roles and regions up to date",
    "topic_dht_promotions": "Times this peer became a forwarder of a topic",
    "topic_dht_regions_full": "Regions of a topic that were too large to be told at once",
    "topic_dht_reliefs": "Times this peer took work from another that had more",
    "topic_dht_secessions": "Times this peer became a forwarder as its parent kept events back",
    "tree_spared": "Neighbours asked not to push events, as others bring them earlier",
    "trees_circles": "Circles found in a tree, and opened",
    "trees_confirmed": "Times this peer asked a parent whether it is still its child",
    "trees_cut_off": "Times no word came from a parent for too long",
    "trees_failed": "Trees of forwarders found broken",
    "trees_given_up": "Trees of topics given up so that others have a share of this peer",
    "trees_pushed_down": "Children sent to other peers, as this one had enough",
    "trees_repairs": "Parents that were lost and had to be replaced",
    "trees_rooted": "Times this peer became a root of a topic's tree",
    "trees_shared_asked": "Times a peer linked for another topic was asked for a place in a tree",
    "view_size": "Peers in the view of the general overlay",
    "walks_refused": "Messages to pass on that came more often than a neighbour may send them",
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
    """The help text; a counter that lacks one, which a test finds, gets a general text."""
    return HELP.get(name, "Counted by the protocol")


def _full(name: str) -> str:
    clean = "".join(letter if letter.isascii() and letter.isalnum() else "_" for letter in name)
    return f"weft_{clean}"
