"""`weft data profile`: how popular topics and how active users of a lake are."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from weft.cli.output import table
from weft.cli.parser import folder, version_options, whole_option
from weft.cli.problem import USAGE, Problem
from weft.cli.spark import master_option, session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

HELP = "Show how a lake's subscriptions are distributed"
DETAILS = """
Fits power laws to how many subscribers topics have and how many topics nodes subscribe to (maximum
likelihood; the tail begins where the fit is closest), and measures how topics are correlated, by
Pearson's coefficient of every two of the most popular ones. For comparison it does the same after
shuffles, in which nodes and topics keep their numbers of subscriptions and the rest is chance.

Writes tables (Parquet) and pictures (PNG and SVG), by default below LAKE/profile.
"""
EXAMPLES = """
weft data profile lake
weft data profile lake --universe seeds-100 --out out/profile
weft data profile lake --least 30 --shuffles 10
"""
WEIGHTS = (3.0, 1.0, 6.0, 2.0)
"""guess: how long the steps of a profile take, one beside the other, for the bar."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("lake", metavar="LAKE", help="made by 'weft data ingest'")
    parser.add_argument("--out", type=folder, metavar="DIR", help="results (LAKE/profile)")
    parser.add_argument("--universe", metavar="NAME", help="profile one of the lake's universes")
    least = "leave out topics with fewer subscribers (1)"
    whole_option(parser, "--least", 1, 10**9, least, default=1)
    popular = "correlate so many of the most popular topics (1000)"
    whole_option(parser, "--popular", 2, 5_000, popular, default=1_000)
    whole_option(parser, "--shuffles", 1, 1_000, "shuffles to compare with (3)", default=3)
    version_options(parser)
    master_option(parser)


def run(args: argparse.Namespace) -> int:
    from weft.lab.progress import Steps
    from weft.pipeline.lake import Lake
    from weft.pipeline.memberships import pruned
    from weft.pipeline.profile import make
    from weft.pipeline.resources import claimed

    try:
        lake = Lake(args.lake, args.version, args.as_of)
        if not lake.rows("memberships"):
            raise Problem(f"{args.lake}: no memberships in this lake")
        if args.out is None and not lake.place.is_local:
            raise Problem(
                f"{args.lake} is not a folder on this machine: say with --out where tables and "
                "pictures go",
                USAGE,
            )
        out = args.out or lake.path / "profile" / (args.universe or "")
        print("weft: starting Spark", file=sys.stderr)
        with session(args, "data profile") as spark:
            held = lake.memberships(spark)
            if args.universe:
                held = lake.universe(spark, args.universe)
            if args.least > 1:
                held = held.transform(pruned, args.least)
            with claimed(out), Steps(spark, WEIGHTS) as steps:
                make(
                    spark,
                    held,
                    out,
                    shuffles=args.shuffles,
                    popular=args.popular,
                    watch=steps.begin,
                )
            for line in told(spark, out):
                print(line)
            _draw(spark, out)
    except ValueError as error:
        raise Problem(str(error)) from error
    print(f"weft: tables and pictures are in {out}", file=sys.stderr)
    return 0


def told(spark: SparkSession, out: Path) -> list[str]:
    """The profile for people."""
    from weft.pipeline import profile

    fits = profile.table(spark, out, "fits").orderBy("kind").collect()
    head = ["power law of", "exponent", "from", "in tail", "of", "distance", "against exponential"]
    lines = table(
        head,
        [
            [
                row.kind,
                f"{row.exponent:.2f} ± {row.error:.2f}",
                str(row.least),
                str(row.tail),
                str(row.total),
                f"{row.distance:.3f}",
                f"{row.against_exponential:+.1f}",
            ]
            for row in fits
        ],
    ).splitlines()
    summary = profile.table(spark, out, "summary").orderBy("shuffle").collect()
    head = ["correlation", "topics", "mean", "median", "99th percentile", "largest"]
    rows = [
        [
            f"shuffle {row.shuffle}" if row.shuffle else "as it is",
            str(row.topics),
            *(f"{row[name]:.4f}" for name in ("mean", "median", "percentile_99", "largest")),
        ]
        for row in summary
    ]
    return [*lines, "", *table(head, rows).splitlines()]


def _draw(spark: SparkSession, out: Path) -> None:
    """The picture: both distributions, and the heat map beside a shuffled one."""
    from weft.lab.figures import panels, save, styled
    from weft.lab.profiles import HEAT_TOPICS, draw_distribution, draw_heat
    from weft.pipeline import profile
    from weft.pipeline.profile import SUBSCRIBERS, SUBSCRIPTIONS

    fits = {row.kind: row for row in profile.table(spark, out, "fits").collect()}
    counted = profile.table(spark, out, "distribution").orderBy("size").collect()
    heat = profile.table(spark, out, "correlation")
    heat = heat.where((heat["other"] < HEAT_TOPICS) & (heat["shuffle"] <= 1))
    with styled():
        drawing, axes = panels(columns=2, rows=2)
        for number, (panel, kind) in enumerate(
            zip(axes, (SUBSCRIBERS, SUBSCRIPTIONS), strict=False)
        ):
            rows = [row for row in counted if row.kind == kind]
            sizes, counts = [row["size"] for row in rows], [row["count"] for row in rows]
            what = "topics" if kind == SUBSCRIBERS else "nodes"
            draw_distribution(panel, sizes, counts, fits.get(kind), number, what)
            panel.set_xlabel(kind)
            panel.set_ylabel("share with at least as many")
            panel.legend()
        pairs: dict[int, list[tuple[int, int, float]]] = {0: [], 1: []}
        for row in heat.collect():
            pairs[row.shuffle].append((row.one, row.other, row.value))
        for panel, (number, title) in zip(
            axes[2:], ((0, "correlation of topics"), (1, "the same, shuffled")), strict=True
        ):
            image = draw_heat(panel, pairs[number], title)
        drawing.colorbar(image, ax=axes[2:], shrink=0.8)
        save(drawing, out)
