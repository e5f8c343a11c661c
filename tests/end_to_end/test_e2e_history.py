"""Events that stay, as users see them: real processes, real stores, the command line."""

from __future__ import annotations

import json
from pathlib import Path

from benchmarks.history import dag

from processes import Peers, run


def test_ten_thousandth_of_the_benchmark(tmp_path: Path) -> None:
    """Three publishers in processes of their own, five percent of all messages lost: everybody
    ends with the identical DAG, and a latecomer reads it."""
    found = dag.run(300, tmp_path, peers=5, patience_s=600)
    assert found["identical_dags"], found
    assert found["replay_identical"], found
    assert found["delivered_least"] == 300
    assert found["lost_percent"] > 2


def test_history_on_the_command_line(peers: Peers, tmp_path: Path) -> None:
    owner = peers.start("--store", "--subscribe", "/sports")
    owner.until_error("subscribed to /sports")
    other = peers.start("--store", "--subscribe", "/sports")
    other.until_error("subscribed to /sports")
    a, b = ["--home", peers.home(0)], ["--home", peers.home(1)]
    owner_id, me = (address.rpartition("/")[2] for address in peers.addresses[:2])

    assert run("topic", "follow", "/sports", owner_id, *b).returncode == 0
    made = json.loads(run("topic", "create", "/sports", me, *a, "--json").stdout)
    assert made["mine"] and made["publishers"] == [me]
    assert run("pub", "/sports", "one", *a).returncode == 0
    other.until("one")
    assert run("pub", "/sports", "two", *b).returncode == 0
    owner.until("two")
    assert run("topic", "revoke", "/sports", me, *a).returncode == 0

    stored = [
        json.loads(line) for line in run("history", "/sports", *b, "--json").stdout.split("\n")[:-1]
    ]
    assert [event["payload"] for event in stored] == ["one", "two"]
    assert stored[1]["parents"] == [stored[0]["cid"]]
    past = run(
        "sub", "/sports", "--since", stored[0]["cid"], "--count", "1", "--timeout", "300", *b
    )
    assert past.stdout == "two\n", past.stderr
    assert run("get", f"{stored[1]['cid']}/parent/payload", "--raw", *b).stdout == "one"

    archive = str(tmp_path / "sports.car")
    assert run("export", "/sports", archive, *b).returncode == 0
    assert run("export", "/sports", archive, *b).returncode == 2  # it is there already
    refused = run("import", archive, *b)
    assert refused.returncode == 1 and "stop it first" in refused.stderr
    copy = ["--store", str(tmp_path / "copy.db")]
    loaded = json.loads(run("import", archive, *copy, "--json").stdout)
    counts = {"events": 2, "known": 0, "topics": 1, "waiting": 0, "foreign": 0}
    assert loaded == {**counts, "refused": {}}
    assert run("history", "/sports", *copy).stdout == "one\ntwo\n"
    assert "/sports" in run("history", *copy).stdout
    shown = run("topic", "show", "/sports", *a)
    assert "only the owners" in shown.stdout and "number 2" in shown.stdout
