"""Real peers in real processes: they find each other, survive kills, and leave politely."""

from __future__ import annotations

import json
import signal
import stat
import subprocess
import urllib.request
from pathlib import Path

from processes import PATIENCE_SECONDS, Peers, Process, run, started
from weft.pipeline.resources import wait_until


def test_survivors_of_sigkill_get_everything(peers: Peers) -> None:
    """Eight peers in one topic; three are killed without warning while events flow."""
    for _ in range(8):
        peers.start("--subscribe", "/news").until_error("subscribed to /news")
    before = [f"before {number}" for number in range(20)]
    done = run("pub", "--home", peers.home(0), "/news", "-", stdin="\n".join(before))
    assert done.returncode == 0, done.stderr
    for process in peers.processes:
        for _ in before:
            process.until("before")

    killed = [2, 4, 7]
    for index in killed:
        peers.processes[index].send(signal.SIGKILL)
    after = [f"after {number}" for number in range(20)]
    done = run("pub", "--home", peers.home(1), "/news", "-", stdin="\n".join(after))
    assert done.returncode == 0, done.stderr
    late = run("pub", "--join", peers.addresses[0], "/news", "from outside")
    assert late.returncode == 0, late.stdout + late.stderr

    expected = sorted([*before, *after, "from outside"])
    for index, process in enumerate(peers.processes):
        if index not in killed:
            while len(process.said) < 1 + len(expected):
                process.line()
            assert sorted(process.said[1:]) == expected  # after its address; each once


def test_ctrl_c_leaves_and_others_notice(peers: Peers) -> None:
    first, second = (peers.start("--subscribe", "/a") for _ in range(2))
    assert run("pub", "--home", peers.home(1), "/a", "hello").returncode == 0
    assert first.until("hello") and second.until("hello")
    second.send(signal.SIGINT)
    assert second.end() == 130
    assert "weft: leaving" in second.complained
    assert not any("Traceback" in line for line in second.complained)
    # It said goodbye: nobody has to find out by a timeout.
    status = json.loads(run("status", "--home", peers.home(0), "--json").stdout)
    assert status["view"] == []
    assert status["topics"]["/a"]["links"] == []
    assert not (Path(peers.home(1)) / "control.sock").exists()


def test_ctrl_c_ends_a_publisher_that_waits_for_input(peers: Peers) -> None:
    peers.start("--subscribe", "/a")
    writer = Process("pub", "--home", peers.home(0), "/a", "-", stdin=subprocess.PIPE)
    assert writer.process.stdin is not None
    try:
        with writer.process.stdin as typed:
            typed.write("one\n")
            typed.flush()
            assert "kept" in writer.line()
            writer.send(signal.SIGINT)  # its input stays open, and says nothing more
            assert writer.end() == 130
        assert not any("Traceback" in line for line in writer.complained)
    finally:
        writer.process.kill()


def test_pub_says_why_it_found_no_way_in(peers: Peers) -> None:
    peers.start()
    address = peers.addresses[0]
    # What cannot be flushed in the end is not waited for.
    hurried = ("--timeout", "3", "--set", "network.leave_timeout_ms=100")
    other = run("pub", "--join", address, "--set", "network.name=b", "/a", "hi", *hurried)
    assert other.returncode == 1 and "belongs to network '" in other.stderr
    assert address in other.stderr and "Traceback" not in other.stderr
    nobody = run("pub", "--join", address, "/a", "hi", "--log-level", "info")
    assert nobody.returncode == 1 and "weft: INFO: connected to" in nobody.stderr
    peers.processes[0].send(signal.SIGKILL)
    peers.processes[0].end()
    dead = run("pub", "--join", address, "/a", "hi", *hurried)
    assert dead.returncode == 1 and f"{address}: cannot reach 127.0.0.1 port" in dead.stderr


def test_pub_makes_sure_of_what_it_is_asked_to(peers: Peers) -> None:
    """As `Peer.publish` does, by the running peer and by one of its own."""
    peers.start("--store", "--subscribe", "/a").until_error("subscribed to /a")
    home, join = ["--home", peers.home(0)], ["--join", peers.addresses[0], "--store", ":memory:"]
    keeper = peers.addresses[0].rpartition("/")[2]

    alone = run("pub", *home, "--confirm", "taken", "--timeout", "1", "/a", "x", "--json")
    assert alone.returncode == 1
    told = json.loads(alone.stdout)
    assert (told["outcome"], told["confirmed"]) == ("timeout", False)
    assert "no other peer of /a is known" in told["reason"]

    stored = run("pub", *join, "--confirm", "stored", "/a", "-", "--json", stdin="one\ntwo\n")
    assert stored.returncode == 0, stored.stderr
    copies = [json.loads(line)["copies"] for line in stored.stdout.splitlines()]
    assert copies == [[keeper], [keeper]]
    in_words = run("pub", *join, "--confirm", "taken", "/a", "three")
    assert in_words.stdout == f"another peer says that it has it: {keeper}\n"

    few = run("pub", *join, "--confirm", "stored", "--copies", "2", "--timeout", "1", "/a", "four")
    assert few.returncode == 1 and few.stdout.startswith("not confirmed: 1 of 2 peers said")


def test_a_peer_that_is_alone_with_an_event_says_so(peers: Peers) -> None:
    peers.start("--subscribe", "/a").until_error("subscribed to /a")
    done = run("pub", "--home", peers.home(0), "/a", "hi")
    assert (done.returncode, done.stdout) == (
        0,
        "kept: the peer is subscribed, and knows no other peer of /a\n",
    )


def test_sigterm_ends_well_and_the_name_is_kept(peers: Peers) -> None:
    process = peers.start()
    process.send(signal.SIGTERM)
    assert process.end() == 0
    key = Path(peers.home(0)) / "key.pem"
    assert stat.S_IMODE(key.stat().st_mode) == 0o600
    with started("peer", "--home", peers.home(0)) as again:
        assert again.line().split("/p2p/")[1] == peers.addresses[0].split("/p2p/")[1]


def test_a_home_has_one_peer(peers: Peers) -> None:
    peers.start()
    done = run("peer", "--home", peers.home(0))
    assert done.returncode == 1
    assert "running already" in done.stderr and "Traceback" not in done.stderr


def test_socket_of_a_killed_peer_is_no_obstacle(peers: Peers) -> None:
    peers.start().send(signal.SIGKILL)
    peers.processes[0].end()
    assert (Path(peers.home(0)) / "control.sock").exists()
    done = run("status", "--home", peers.home(0))
    assert done.returncode == 1 and "start one with 'weft peer'" in done.stderr
    with started("peer", "--home", peers.home(0)) as again:
        again.line()
        assert run("status", "--home", peers.home(0)).returncode == 0


def test_an_address_is_told_whole_and_follows_no_link_of_others(tmp_path: Path) -> None:
    """Another user of the folder guesses how a half-written file is called."""
    told, victim = tmp_path / "peers", tmp_path / "victim"
    victim.write_text("precious")
    plant = ("sh", "-c", f'ln -s victim "{tmp_path}/.peers.$$"; exec "$@"', "sh")
    where = ("--home", str(tmp_path / "home"), "--tell", str(told), "--subscribe", "/a")
    with started("peer", *where, by=plant) as peer:
        peer.until_error("subscribed to /a")
        assert told.read_text() == f"{peer.said[0]}\n"
    assert victim.read_text() == "precious"


def test_sub_and_pub_through_a_running_peer(peers: Peers) -> None:
    peers.start()
    peers.start()
    with started("sub", "--home", peers.home(0), "/a", "/b", "--json", "--count", "3") as sub:
        for _ in range(2):
            sub.until_error("subscribed")
        done = run("pub", "--home", peers.home(1), "/a", "-", "--json", stdin="one\ntwo\n")
        assert [json.loads(line)["outcome"] for line in done.stdout.splitlines()] == (["taken"] * 2)
        assert run("pub", "--home", peers.home(1), "/b", "three").returncode == 0
        assert sub.end() == 0
    notes = [json.loads(line) for line in sub.said]
    assert [note["payload"] for note in notes if note["topic"] == "/a"] == ["one", "two"]
    assert [note["payload"] for note in notes if note["topic"] == "/b"] == ["three"]
    publisher = peers.addresses[1].split("/p2p/")[1]
    assert {note["publisher"] for note in notes} == {publisher}


def test_sub_ends_by_count_timeout_and_ctrl_c(peers: Peers) -> None:
    peers.start()
    home = ("--home", peers.home(0))
    assert run("sub", *home, "/a", "--count", "1", "--timeout", "0.2").returncode == 1
    assert run("sub", *home, "/a", "--timeout", "0.2").returncode == 0
    with started("sub", *home, "/a") as sub:
        sub.until_error("subscribed")
        sub.send(signal.SIGINT)
        assert sub.end() == 130
        assert not any("Traceback" in line for line in sub.complained)


def test_pub_says_that_nobody_listens(peers: Peers) -> None:
    peers.start()
    peers.start()

    def is_known() -> bool:
        status = json.loads(run("status", "--home", peers.home(0), "--json").stdout)
        return not status["isolated"]

    assert wait_until(is_known, PATIENCE_SECONDS)
    done = run("pub", "--home", peers.home(0), "/empty", "hello?")
    assert done.returncode == 1
    assert "no subscriber of /empty" in done.stdout


def test_status_topics_and_metrics(peers: Peers) -> None:
    first = peers.start("--subscribe", "/a", "--metrics", "127.0.0.1:0")
    where = first.until_error("metrics at").split(" at ")[1]
    first.until_error("subscribed")
    with urllib.request.urlopen(where, timeout=PATIENCE_SECONDS) as answer:
        text = answer.read().decode()
    assert "# TYPE weft_" in text
    assert peers.addresses[0] in run("status", "--home", peers.home(0)).stdout
    assert "/a" in run("topics", "--home", peers.home(0)).stdout
    assert "# TYPE weft_" in run("status", "--home", peers.home(0), "--metrics").stdout


def test_peer_does_not_start_on_wrong_settings(tmp_path: Path, peers: Peers) -> None:
    taken = peers.start()
    port = peers.addresses[0].split("/tcp/")[1].split("/")[0]
    done = run("peer", "--home", str(tmp_path / "x"), "--listen", f"127.0.0.1:{port}")
    assert done.returncode == 1 and port in done.stderr and "Traceback" not in done.stderr
    readable = tmp_path / "readable"
    readable.mkdir()
    (readable / "key.pem").write_text("x")
    (readable / "key.pem").chmod(0o644)
    done = run("peer", "--home", str(readable))
    assert done.returncode == 1 and "chmod 600" in done.stderr
    assert taken.process.poll() is None
