"""A trace that cannot be written on ends, and its peer goes on."""

from __future__ import annotations

import pytest

import weft


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
