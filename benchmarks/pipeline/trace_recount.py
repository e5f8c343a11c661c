"""All figures of a trace counted again in plain SQL by DuckDB, from the lines themselves: none of
the pipeline's code, and none of its steps (parts, pieces, bins). `docs/trace.md` says what each
figure is."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import duckdb


def recount(
    path: Path, groups: Mapping[str, Sequence[str]], routing: str, threads: int = 1
) -> dict[str, float | None]:
    """The figures of a file, or of all that a pattern names; `groups` are the kinds of messages
    that are not maintenance, by group; `routing` is the kind that brings events to a topic."""
    db = duckdb.connect()
    db.execute(f"set threads = {threads}")
    kinds = [(kind, group) for group, kinds in groups.items() for kind in kinds]
    db.execute("create table grouped (rpc varchar, grp varchar)")
    db.executemany("insert into grouped values (?, ?)", kinds)
    db.execute(_LINES, [str(path)])
    db.execute(_TABLES.format(routing=routing))
    row = db.execute(_FIGURES).fetchone()
    assert row is not None and db.description is not None
    return {
        name: None if value is None else float(value)
        for (name, *_), value in zip(db.description, row, strict=True)
    }


_LINES = """
create table line as
select row_number() over () as place, json ->> 'peerID' as peer,
       (json ->> 'timestamp')::bigint as ns, json ->> 'type' as kind, json
from read_json_objects(?, format = 'newline_delimited')
"""

_TABLES = """
-- Subscriptions: the latest JOIN or LEAVE decides; before the first, its contrary held.
create table change as
select peer, coalesce(json ->> '$.join.topic', json ->> '$.leave.topic') as topic, ns,
       kind = 'JOIN' as begins
from line where kind in ('JOIN', 'LEAVE');

create table span as
select peer, topic, begins, ns as since,
       coalesce(lead(ns) over same, 9223372036854775807) as until
from change window same as (partition by peer, topic order by ns, begins)
union all
select peer, topic, not arg_min(begins, (ns, begins)), -9223372036854775808, min(ns)
from change group by all;
create table subscribed as select * from span where begins and since < until;

create table published as
select json ->> '$.publishMessage.messageID' as message, json ->> '$.publishMessage.topic' as topic,
       peer as publisher, ns
from line where kind = 'PUBLISH_MESSAGE';

create table delivery as
select json ->> '$.deliverMessage.messageID' as message, peer, ns,
       (json ->> '$.deliverMessage.hops')::int as hops
from line where kind = 'DELIVER_MESSAGE';

create table notified as
select message, peer, min(ns) as ns, arg_min(hops, (ns, hops)) as hops, count(*) as times
from delivery group by all;

create table judged as
select n.*, p.topic, p.publisher, n.peer <> p.publisher as remote,
       greatest(0, n.ns - p.ns) / 1e6 as latency_ms,
       exists (from subscribed s where s.peer = n.peer and s.topic = p.topic
               and s.since <= p.ns and p.ns < s.until) as wanted
from notified n join published p using (message);

create table message as
select peer, kind, coalesce(json -> 'sendRPC', json -> 'recvRPC', json -> 'dropRPC') as rpc, ns
from line where kind in ('SEND_RPC', 'RECV_RPC', 'DROP_RPC');

create table copy as
select peer, ns, rpc ->> 'receivedFrom' as other, rpc ->> '$.meta.kind' as kind,
       unnest(from_json(rpc -> '$.meta.messages', '["json"]')) ->> 'topic' as topic
from message where kind = 'RECV_RPC' and json_array_length(rpc -> '$.meta.messages') > 0;

create table stray as
select kind = '{routing}' as routed from copy c
where not exists (from subscribed s where s.peer = c.peer and s.topic = c.topic
                  and s.since <= c.ns and c.ns < s.until);

create table sent as
select coalesce(grp, 'maintenance') as grp, (m.rpc ->> '$.meta.bytes')::bigint as bytes
from message m left join grouped g on g.rpc = m.rpc ->> '$.meta.kind'
where kind = 'SEND_RPC';

create table load as
select peer, count(*) filter (kind in ('SEND_RPC', 'RECV_RPC')) as x from line group by peer;

create table placed_load as select x, row_number() over (order by x) as place from load;

create table link as select peer, other, topic from copy group by all;

create table connection as
select peer, ns, sum(if(kind = 'ADD_PEER', 1, -1)) over same as open,
       lead(ns) over same - ns as lasts
from line where kind in ('ADD_PEER', 'REMOVE_PEER')
window same as (partition by peer order by ns, kind = 'ADD_PEER', place);

create table connected as
select peer, coalesce(sum(open * lasts) / nullif(sum(lasts), 0), max(open)) as mean,
       max(open) as most
from connection group by peer;
"""

_FIGURES = """
with counts as (
  select (select count(*) from load) as peers,
         (select count(*) from published) as events,
         (select count(*) from published p join subscribed s
          on s.topic = p.topic and s.since <= p.ns and p.ns < s.until) as expected,
         (select count(*) from judged where wanted) as delivered,
         (select count(*) from judged) as notifications,
         (select coalesce(sum(times - 1), 0) from judged) as twice,
         (select count(*) from notified n where not exists
          (from published p where p.message = n.message)) as without_publish,
         (select count(*) from judged where remote) as remote_deliveries,
         (select count(*) from sent) as messages,
         (select sum(bytes) from sent) as bytes,
         (select count(*) from message where kind = 'DROP_RPC') as dropped,
         (select count(*) from line where kind = 'DUPLICATE_MESSAGE') as duplicates,
         (select count(*) from copy) as copies,
         (select count(*) from stray where not routed) as parasites,
         (select count(*) from stray where routed) as parasites_routed),
grouped as (
  select count(*) filter (grp = 'payload') as messages_payload,
         count(*) filter (grp = 'control') as messages_control,
         count(*) filter (grp = 'maintenance') as messages_maintenance,
         sum(bytes) filter (grp = 'payload') as bytes_payload,
         sum(bytes) filter (grp = 'control') as bytes_control,
         sum(bytes) filter (grp = 'maintenance') as bytes_maintenance from sent),
quantiles as (
  select quantile_disc(latency_ms, 0.5) as latency_ms_p50,
         quantile_disc(latency_ms, 0.9) as latency_ms_p90,
         quantile_disc(latency_ms, 0.99) as latency_ms_p99, max(latency_ms) as latency_ms_max,
         quantile_disc(hops, 0.5) as hops_p50, quantile_disc(hops, 0.9) as hops_p90,
         quantile_disc(hops, 0.99) as hops_p99, max(hops) as hops_max from judged where remote),
loads as (
  select avg(x) as load_mean, max(x) as load_max,
         sum(x) * sum(x) / (count(*) * sum(x * x)) as load_jain,
         2 * sum(place * x) / (count(*) * sum(x)) - (count(*) + 1) / count(*) as load_gini
  from placed_load),
links as (
  select avg(coalesce(n, 0)) as links_mean, max(coalesce(n, 0)) as links_max,
         avg(coalesce(by_topic, 0)) as topic_links_mean
  from load left join
    (select peer, count(distinct other) as n, count(*) as by_topic from link group by peer)
    using (peer)),
connections as (
  select avg(mean) as connections_mean, max(most) as connections_max from connected)
select *, delivered / nullif(expected, 0) as delivery_ratio, notifications - delivered as others,
       messages / notifications as messages_per_notification,
       messages_payload / notifications as messages_payload_per_notification,
       messages_control / notifications as messages_control_per_notification,
       messages_maintenance / notifications as messages_maintenance_per_notification,
       bytes / notifications as bytes_per_notification,
       bytes_payload / notifications as bytes_payload_per_notification,
       bytes_control / notifications as bytes_control_per_notification,
       bytes_maintenance / notifications as bytes_maintenance_per_notification,
       duplicates / notifications as duplicates_per_delivery,
       copies / remote_deliveries as copies_per_delivery,
       parasites / notifications as parasites_per_delivery
from counts, grouped, quantiles, loads, links, connections
"""
