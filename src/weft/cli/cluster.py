"""`weft cluster`: a Spark cluster on this machine, for jobs that take `--master`."""

from __future__ import annotations

import argparse
from pathlib import Path

from weft.cli.output import say, table
from weft.cli.parser import whole_option
from weft.cli.problem import FAILED, Problem

HELP = "Run a Spark cluster on this machine, for jobs with --master"
DETAILS = """
up      start a master and workers, wait until all are there, and print the master's address
status  show workers, cores in use and jobs (exit code 1 if workers or the master are gone)
join    start more workers on this machine, for a cluster whose folder both machines see
down    end exactly the processes that up and join started on this machine, also after a crash

Everything listens on loopback unless --listen names an address of this machine. The cluster takes
jobs only of users that can read its secret. The secret and the logs are in the cluster's folder
(--dir, else WEFT_CLUSTER, else ~/.weft/cluster), where jobs find the cluster. Clusters on other
machines: docs/operating.md.
"""
EXAMPLES = """
weft cluster up                               two workers with a core and 1 GB each
weft cluster up --workers 4 --cores 2 --memory 4g
weft lab run 'tera-*' --master spark://127.0.0.1:PORT
weft cluster up --listen 10.0.0.1 --dir /shared/cluster       a cluster other machines can join
weft cluster join --listen 10.0.0.2 --dir /shared/cluster     … on one of these machines
weft cluster status
weft cluster down
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("action", choices=("up", "status", "join", "down"), help="what to do")
    whole_option(parser, "--workers", 1, 64, "how many workers (2)", default=2)
    whole_option(parser, "--cores", 1, 1024, "tasks at once in each (1)", default=1)
    parser.add_argument(
        "--memory",
        default="1g",
        metavar="SIZE",
        help="memory of each worker's Java process, such as 512m or 4g (1g)",
    )
    parser.add_argument(
        "--listen",
        default="127.0.0.1",
        metavar="ADDRESS",
        help="address of this machine, as other machines reach it (127.0.0.1)",
    )
    whole_option(parser, "--port", 0, 65535, "the master's port (any free)", default=0)
    whole_option(parser, "--ui-port", 0, 65535, "port of the master's page (any free)", default=0)
    parser.add_argument(
        "--dir", type=Path, metavar="DIR", help="the cluster's folder (WEFT_CLUSTER)"
    )


def run(args: argparse.Namespace) -> int:
    from weft.pipeline.cluster import default_folder

    folder = args.dir or default_folder()
    return {"up": _up, "status": _status, "join": _join, "down": _down}[args.action](args, folder)


def _up(args: argparse.Namespace, folder: Path) -> int:
    from weft.pipeline.cluster import Size, default_folder, up

    size = Size(args.workers, args.cores, args.memory)
    say("starting a master and its workers")
    cluster = up(folder, size, args.port, args.ui_port, args.listen)
    print(f"master  {cluster.master}")
    print(f"page    {cluster.page}")
    say(f"{size.workers} workers are there, each with {size.cores} cores and {size.memory}")
    if folder.resolve() != default_folder().resolve():
        say(f"jobs find it with WEFT_CLUSTER={folder.resolve()}")
    say("'weft cluster down' ends it")
    return 0


def _join(args: argparse.Namespace, folder: Path) -> int:
    from weft.pipeline.cluster import Size, join

    say("starting workers")
    cluster = join(folder, Size(args.workers, args.cores, args.memory), args.listen)
    print(f"master  {cluster.master}")
    say(f"workers of the cluster in all: {cluster.size.workers}")
    return 0


def _status(args: argparse.Namespace, folder: Path) -> int:
    from weft.pipeline.cluster import described

    cluster = described(folder)
    if cluster is None:
        raise Problem(f"no cluster is described in {folder}; 'weft cluster up' starts one")
    state = cluster.state()
    if state is None:
        left = len(cluster.processes())
        raise Problem(
            f"the master of {folder} does not answer ({left} processes are left); "
            "'weft cluster down' cleans up"
        )
    print(f"master  {cluster.master}")
    print(f"page    {cluster.page}")
    rows = [
        [f"{of['host']}:{of['port']}", of["state"].lower(), f"{of['coresused']} of {of['cores']}"]
        for of in state["workers"]
    ]
    print(table(("worker", "state", "cores in use"), rows))
    for job in state["activeapps"]:
        print(f"job     {job['name']} ({job['cores']} cores)")
    missing = cluster.size.workers - cluster.workers_alive()
    if missing:
        say(f"{missing} of {cluster.size.workers} workers are lost")
    return FAILED if missing else 0


def _down(args: argparse.Namespace, folder: Path) -> int:
    from weft.pipeline.cluster import down

    ended = down(folder)
    say(f"ended {ended} processes" if ended else "nothing ran any more; cleaned up")
    return 0
