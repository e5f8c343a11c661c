"""Networks of a test's own, in network namespaces: a router between an inside and an outside.

    inside 10.77.1.2 --- 10.77.1.1 router 10.77.2.1 --- 10.77.2.2 outside

Outside has no way to inside; what inside sends goes out under the router's address, as behind a
router at home (nftables' masquerade). The line to inside is slow if wanted (`slow_line.py`, since
not every kernel has netem). Made as root; where that is not possible, the words say why.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

OUTSIDE = "10.77.2.2"
_INSIDE = "10.77.1.2"
_ROUTER_IN, _ROUTER_OUT = "10.77.1.1", "10.77.2.1"
_RULES = """
table ip weft {
  chain outwards { type nat hook postrouting priority 100; oifname "outer" masquerade; }
  chain through { type filter hook forward priority 0; LOSS accept; }
}
"""


class Unavailable(Exception):
    """Such networks cannot be made here; the text says why."""


class Spaces:
    """The three networks, while they are there."""

    def __init__(self, name: str) -> None:
        self.names = {part: f"{name}-{part}" for part in ("inside", "router", "outside")}

    def by(self, part: str) -> list[str]:
        """What starts a command there."""
        return ["ip", "netns", "exec", self.names[part]]

    def command(self, part: str, *words: str) -> None:
        _run([*self.by(part), *words])

    def cut(self) -> None:
        """From now on the router drops all that should go through it, and tells nobody."""
        self.command("router", "nft", "insert", "rule", "ip", "weft", "through", "drop")


def _run(words: Sequence[str]) -> None:
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    if done.returncode:
        raise Unavailable(f"{' '.join(words)}: {done.stderr.strip()}")


@contextmanager
def spaces(name: str, loss_percent: int = 0, delay_ms: int = 0) -> Iterator[Spaces]:
    """A router that loses and delays what goes through it, with what is on both sides of it."""
    for program in ("ip", "nft"):
        if shutil.which(program) is None:
            raise Unavailable(f"there is no command {program!r} (Debian: iproute2, nftables)")
    if os.geteuid() != 0:
        raise Unavailable("only root makes networks")
    made = Spaces(f"weft-{name}-{os.getpid()}")
    with ExitStack() as stack:
        for space in made.names.values():
            _run(["ip", "netns", "add", space])
            stack.callback(_run, ["ip", "netns", "del", space])
        if delay_ms:
            _slow_line(made, delay_ms, stack)
        _wire(made, slow=bool(delay_ms))
        loss = f"numgen random mod 100 < {loss_percent} drop;" if loss_percent else ""
        made.command("router", "nft", "list", "tables")  # whether the kernel has it at all
        rules = [*made.by("router"), "nft", "-f", "-"]
        subprocess.run(rules, input=_RULES.replace("LOSS", loss), text=True, check=True)
        yield made


def _slow_line(made: Spaces, delay_ms: int, stack: ExitStack) -> None:
    """Between inside and the router; it ends before they do."""
    words = [sys.executable, str(Path(__file__).with_name("slow_line.py")), str(delay_ms)]
    words += [made.names["inside"], "eth", made.names["router"], "inner"]
    line = stack.enter_context(subprocess.Popen(words, stdout=subprocess.PIPE, text=True))
    stack.callback(line.terminate)
    assert line.stdout is not None
    said = line.stdout.readline().strip()
    if said != "ready":
        raise Unavailable(f"no slow line: {said}")


def _wire(made: Spaces, slow: bool) -> None:
    """Cables from the router to both sides, addresses, and the way out from inside. A slow line
    to inside is there already."""
    ends = (("inside", "inner", _INSIDE, _ROUTER_IN), ("outside", "outer", OUTSIDE, _ROUTER_OUT))
    for side, device, address, router in ends:
        if not (slow and side == "inside"):
            peer = ["peer", "name", "eth", "netns", made.names[side]]
            made.command("router", "ip", "link", "add", device, "type", "veth", *peer)
        made.command("router", "ip", "address", "add", f"{router}/24", "dev", device)
        made.command("router", "ip", "link", "set", device, "up")
        made.command(side, "ip", "address", "add", f"{address}/24", "dev", "eth")
        for up in ("eth", "lo"):
            made.command(side, "ip", "link", "set", up, "up")
    made.command("inside", "ip", "route", "add", "default", "via", _ROUTER_IN)
    made.command("router", "sysctl", "-q", "-w", "net.ipv4.ip_forward=1")
