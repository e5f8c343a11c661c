"""What the engine costs: Cyclon against the machine's own limit, and how costs grow.

    ./weft bench engine --peers 1000000 --json

The limit is measured in the same run and on the same memory: as many random rows of 128 bytes
as one core can fetch, change and write back, when it does nothing else and is told of each row
in good time. An exchange needs two of them. Kernel and limit take turns, for equally long, so
that whatever else the machine does weighs on both; the ratio is that of the medians.
"""

from __future__ import annotations

import argparse
import json
import resource
import statistics
import sys
import time
from typing import Any

from benchmarks.graph import exponent, indegrees, random_shape, shape

from weft.engine.core.arrays import Ids
from weft.engine.core.draws import below
from weft.engine.core.jit import compiled, u64
from weft.engine.core.layout import ROW_BYTES, get_id, prefetch_row, set_id
from weft.engine.core.vector import taken_on_trust
from weft.engine.data.memberships import spread, uniform_sizes
from weft.engine.tera.cyclon import Cycle, Overlay, Span, cycle_fast, overlay_keys, random_overlay
from weft.engine.tera.topics import random_topics
from weft.rules.draw import mix

_DISTANCES = (8, 16, 32)
_PAIRS_AT_ONCE = 2_000_000


@compiled
def touch_random_rows(words: Ids, peers: int, start: int, rows: int, ahead: int) -> None:
    """Fetch, change and write back random rows; told `ahead` rows before each is needed."""
    for item in range(start, start + rows):
        prefetch_row(words, below(mix(u64(item + ahead)), peers))
        row = below(mix(u64(item)), peers)
        # The same value is written, which the compiler cannot know: views stay as they are.
        set_id(words, row, 0, taken_on_trust(get_id(words, row, 0)))
        set_id(words, row, 19, taken_on_trust(get_id(words, row, 19)))


def _ceiling_once(overlay: Overlay, pairs: int, start: int, ahead: int) -> float:
    """Pairs of rows per second of processor time."""
    before = time.thread_time()
    touch_random_rows(overlay.rows.words, overlay.peers, start, 2 * pairs, ahead)
    return pairs / (time.thread_time() - before)


def _best_distance(overlay: Overlay, pairs: int) -> int:
    rates = {
        ahead: max(_ceiling_once(overlay, pairs, turn * 2 * pairs, ahead) for turn in range(3))
        for ahead in _DISTANCES
    }
    return max(rates, key=lambda ahead: rates[ahead])


def _cycle_once(overlay: Overlay) -> float:
    before = time.thread_time()
    overlay.run(1)
    return overlay.peers / (time.thread_time() - before)


def against_ceiling(peers: int, cycles: int, seed: int, tell: Any) -> dict[str, Any]:
    """Run `cycles` cycles, the limit in between, and look at the overlay they leave."""
    overlay = random_overlay(peers, seed)
    pairs = min(peers, _PAIRS_AT_ONCE)
    overlay.run(1)  # compiles
    ahead = _best_distance(overlay, pairs)
    rates, ceilings = [], []
    for cycle in range(cycles - 1):
        rates.append(_cycle_once(overlay))
        if len(ceilings) < 100:
            ceilings.append(_ceiling_once(overlay, pairs, cycle * 2 * pairs, ahead))
        tell(cycle + 2, cycles)
    last = Cycle(overlay_keys(seed), overlay.cycle + 1, overlay.shuffle_length)
    _, uncommon = cycle_fast(overlay.rows, Span(0, peers), last)
    degrees = indegrees(overlay.rows, peers)
    rate, ceiling = statistics.median(rates), statistics.median(ceilings)
    return {
        "peers": peers,
        "cycles": cycles + 1,
        "peer_cycles_per_s": round(rate),
        "peer_cycles_per_s_best": round(max(rates)),
        "ceiling_per_s": round(ceiling),
        "ceiling_ratio": round(rate / ceiling, 3),
        "ceiling_ahead_rows": ahead,
        "ns_per_exchange": round(1e9 / rate, 1),
        "uncommon_exchanges": round(uncommon / peers, 5),
        "bytes_per_peer": ROW_BYTES,
        "resident_bytes_max": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
        "indegree_mean": round(float(degrees.mean()), 3),
        "indegree_std": round(float(degrees.std()), 3),
    }


def likeness(seed: int) -> dict[str, Any]:
    """10⁴ peers after 200 cycles, against a random graph of the same out-degree."""
    overlay = random_overlay(10_000, seed)
    overlay.run(200)
    found, wanted = shape(overlay.rows, 10_000, seed), random_shape(10_000, 20, seed + 1)
    return {
        "indegree_mean": round(found.indegree_mean, 3),
        "indegree_std": round(found.indegree_std, 3),
        "clustering": round(found.clustering, 6),
        "clustering_to_random": round(found.clustering / wanted.clustering, 4),
        "path_length": round(found.path_length, 4),
        "path_length_to_random": round(found.path_length / wanted.path_length, 4),
    }


def growth_in_peers(seed: int) -> dict[str, Any]:
    """How a cycle's cost grows with the peers, beyond what the caches hold."""
    sizes = [10**5, 3 * 10**5, 10**6, 3 * 10**6]
    seconds = []
    for peers in sizes:
        overlay = random_overlay(peers, seed)
        overlay.run(1)
        seconds.append(min(peers / _cycle_once(overlay) for _ in range(5)))
    return {"sizes": sizes, "seconds": seconds, "exponent": round(exponent(sizes, seconds), 3)}


def growth_in_subscriptions(seed: int) -> dict[str, Any]:
    """How a cycle of all topic overlays grows with the subscriptions (100 topics)."""
    sizes = [10**4, 3 * 10**4, 10**5, 3 * 10**5]
    seconds = []
    for subscriptions in sizes:
        held = spread(uniform_sizes(100, subscriptions, 10**4, seed), 10**4, seed)
        topics = random_topics(held, seed)
        topics.run(1)
        best = float("inf")
        for _ in range(5):
            before = time.thread_time()
            topics.run(1)
            best = min(best, time.thread_time() - before)
        seconds.append(best)
    return {"sizes": sizes, "seconds": seconds, "exponent": round(exponent(sizes, seconds), 3)}


def _progress() -> Any:
    started = time.monotonic()

    def tell(done: int, total: int) -> None:
        if not sys.stderr.isatty():
            return
        left = (time.monotonic() - started) / done * (total - done)
        end = "\n" if done == total else ""
        print(f"\rcycle {done}/{total}, {left:.0f} s left ", end=end, file=sys.stderr, flush=True)

    return tell


def _cycles_for(peers: int) -> int:
    """200 cycles, fewer where that would take more than a minute or so."""
    return max(4, min(200, 10**9 // peers))


def main(argv: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="weft bench engine", description=__doc__)
    parser.add_argument("--peers", type=int, default=10**6, metavar="N")
    parser.add_argument("--cycles", type=int, help="default: 200, fewer for very many peers")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--no-growth", action="store_true", help="skip the growth of costs")
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args(argv)
    if args.peers < 64:
        parser.error("--peers must be at least 64")
    cycles = args.cycles or _cycles_for(args.peers)
    result = against_ceiling(args.peers, max(3, cycles), args.seed, _progress())
    result["at_10000_peers_200_cycles"] = likeness(args.seed)
    if not args.no_growth:
        result["growth_in_peers"] = growth_in_peers(args.seed)
        result["growth_in_subscriptions"] = growth_in_subscriptions(args.seed)
    if args.json:
        print(json.dumps(result))
    else:
        for name, value in result.items():
            print(f"{name:28} {value}")
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
