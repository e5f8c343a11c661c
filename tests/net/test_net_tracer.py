"""A trace ends with its peer, or before it where it cannot be written on."""

from __future__ import annotations

import gc
from pathlib import Path

import pytest

import weft
from weft.store.memory import MemoryStore


class Gone(MemoryStore):
    """A store that cannot be read."""

    def records(self) -> dict[bytes, bytes]:
        raise weft.StoreError("the disk is gone")


async def test_a_full_disk_ends_the_trace_and_nothing_else(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Each publish failed, what it had to send was not sent, and closing raised."""
    async with (
        weft.Peer.open() as other,
        weft.Peer.open(join=other.address, trace="/dev/full") as peer,  # takes nothing
    ):
        sub = await peer.subscribe("/x")
        for number in range(2_000):  # more than is gathered before it is written
            assert (await peer.publish("/x", str(number))).outcome in ("alone", "sent")
            assert (await anext(sub)).payload == str(number).encode()
    said = [one.getMessage() for one in caplog.records]
    assert said == ["the trace /dev/full ends here: No space left on device"]


async def test_a_peer_that_does_not_start_closes_its_trace(tmp_path: Path) -> None:
    with pytest.raises(weft.StoreError, match="the disk is gone"):
        await weft.Peer.start(trace=tmp_path / "peer.jsonl", store=Gone())
    gc.collect()  # a file that is still open would be found now
