"""The demonstration and the swarm, as a user runs them."""

from __future__ import annotations

import json
import os
import select
import signal
import xml.etree.ElementTree as ElementTree
from html.parser import HTMLParser
from pathlib import Path

from processes import PATIENCE_SECONDS, children, run, started

SMALL = ("--peers", "8", "--processes", "3", "--topics", "4", "--events", "40", "--seconds", "1")


class Page(HTMLParser):
    """Checks that tags are closed, and counts pictures and outside references."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.pictures = 0
        self.references: list[str] = []

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        self.pictures += tag == "svg"
        self.references += [value or "" for name, value in attributes if name in ("src", "href")]
        if tag != "meta":
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def test_demo_delivers_everything_and_reports(tmp_path: Path) -> None:
    out = tmp_path / "out"
    done = run("demo", "--out", str(out), *SMALL)  # starts Spark
    assert done.returncode == 0, done.stdout + done.stderr
    summary = json.loads((out / "summary.json").read_text())
    assert summary["all_delivered"] and summary["complete"]
    assert summary["peers"] == 8 and summary["processes"] == 3 and summary["events"] == 40
    assert summary["notifications_delivered"] == summary["notifications_expected"] > 40
    assert sum(summary["publish_outcomes"].values()) == 40
    assert summary["publish_outcomes"].keys() <= {"sent", "taken"}
    assert 0 < summary["events_from_outside"] < 40
    assert summary["messages_per_notification"] > 0
    assert 1 <= summary["payload_copies_per_delivery"] < 3
    latency = summary["latency_ms"]
    assert 0 < latency["p50"] <= latency["p99"] <= latency["max"]

    traces = sorted((out / "trace").iterdir())
    assert len(traces) == 8
    kinds = {json.loads(line)["type"] for path in traces for line in path.read_text().splitlines()}
    assert {"PUBLISH_MESSAGE", "DELIVER_MESSAGE", "SEND_RPC", "RECV_RPC", "JOIN"} <= kinds

    # The pipeline found the same in the traces as the demo counted itself.
    measured = summary["measured"]
    assert summary["measured_differences"] == []
    assert measured["delivery_ratio"] == 1
    assert measured["delivered"] == summary["notifications_delivered"]
    assert measured["messages"] >= summary["messages"] > 0
    assert measured["bytes_per_notification"] > 0 and measured["connections_mean"] > 0
    assert "agree with what was counted" in done.stdout
    report = (out / "report.html").read_text()
    assert "while publishing" in report and "whole run" in report
    assert "parasites routed" not in report  # explained words, not every name of a figure
    tables = {path.name for path in (out / "tables").iterdir()}
    assert {"summary", "events", "peers", "latency.svg", "load.svg"} <= tables

    page = Page()
    page.feed((out / "report.html").read_text())
    page.close()
    assert page.open == [] and page.pictures == 4 and page.references == []
    picture = ElementTree.parse(out / "overlay.svg").getroot()
    hints = [title.text or "" for title in picture.iter("{http://www.w3.org/2000/svg}title")]
    assert sum(hint.startswith("peer ") for hint in hints) == 8

    # Its own folder may be used again, and nothing of the earlier run stays.
    again = run("demo", "--out", str(out), "--no-measure", *SMALL)
    assert again.returncode == 0, again.stderr
    assert len(list((out / "trace").iterdir())) == 8
    assert not (out / "tables").exists()
    assert "measured" not in json.loads((out / "summary.json").read_text())


def test_demo_interrupted_leaves_nothing_running(tmp_path: Path) -> None:
    out = tmp_path / "out"
    with started("demo", "--out", str(out), "--peers", "8", "--seconds", "60") as demo:
        demo.until_error("weaving")
        demo.send_group(signal.SIGINT)
        assert demo.end() == 130
        assert demo.group_is_gone()
        assert not any("Traceback" in line for line in demo.complained), demo.complained
    summary = json.loads((out / "summary.json").read_text())
    assert summary["complete"] is False and summary["all_delivered"] is False
    assert "Not finished" in (out / "report.html").read_text()


def test_demo_says_when_a_process_dies(tmp_path: Path) -> None:
    with started("demo", "--out", str(tmp_path / "out"), "--seconds", "60", *SMALL[:6]) as demo:
        demo.until_error("weaving")
        os.kill(children(demo.process.pid)[0], signal.SIGKILL)
        assert demo.end() == 1
        assert demo.group_is_gone()
        assert any("ended unexpectedly" in line for line in demo.complained), demo.complained


def test_workers_end_with_their_owner(tmp_path: Path) -> None:
    with started("swarm", "--peers", "4", "--processes", "2") as swarm:
        for _ in range(4):
            swarm.line()
        workers = children(swarm.process.pid)
        assert len(workers) == 2
        watched = [os.pidfd_open(worker) for worker in workers]
        swarm.send(signal.SIGKILL)
        for handle in watched:
            ended(handle)


def ended(handle: int) -> None:
    """Wait for a process that is not our child."""
    poll = select.poll()
    poll.register(handle, select.POLLIN)
    assert poll.poll(PATIENCE_SECONDS * 1000), "still running"
    os.close(handle)


def test_a_swarm_says_when_it_has_settled_and_leaves() -> None:
    with started("swarm", "--peers", "6", "--subscribe", "/chat", "--settle", "300") as swarm:
        swarm.until_error("settled after")
        swarm.until_error("an event in /chat reached all")
        assert swarm.end() == 0
        assert swarm.group_is_gone()


def test_a_swarm_says_when_it_has_not_settled() -> None:
    with started("swarm", "--peers", "6", "--subscribe", "/chat", "--settle", "0.001") as swarm:
        swarm.until_error("not settled within 0.001 s")
        assert swarm.end() == 1


def test_a_swarm_that_is_still_opening_leaves_on_ctrl_c() -> None:
    with started("swarm", "--peers", "60", "--processes", "2") as swarm:
        swarm.until_error("peers,")
        swarm.send_group(signal.SIGINT)
        assert swarm.end() == 130
        assert swarm.group_is_gone()
        assert not any("Traceback" in line for line in swarm.complained)


def test_swarm_can_be_joined_and_leaves_on_ctrl_c() -> None:
    with started("swarm", "--peers", "6", "--processes", "2", "--subscribe", "/chat") as swarm:
        addresses = [swarm.line() for _ in range(6)]
        assert len(set(addresses)) == 6
        swarm.until_error("6 joined")
        assert run("pub", "--join", addresses[5], "/chat", "hello").returncode == 0
        swarm.until_error(" 6 notifications")
        swarm.send_group(signal.SIGINT)
        assert swarm.end() == 130
        assert swarm.group_is_gone()
        assert not any("Traceback" in line for line in swarm.complained)
