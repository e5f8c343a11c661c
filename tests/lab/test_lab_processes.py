"""A small swarm of real peers over processes: it does what it is told, and ends."""

from __future__ import annotations

import pytest

from weft.lab.processes import Swarm, SwarmError


async def test_a_swarm_of_real_peers_does_a_round_and_ends() -> None:
    config = {"protocol": {"stan": {"enabled": True, "period_ms": 0, "sample": False}}}
    async with Swarm(4, 2, config=config) as swarm:
        await swarm.open(0, 1)
        await swarm.open(1, 4)
        assert len(set(swarm.addresses)) == 4
        await swarm.subscribe(dict.fromkeys(range(4), ("/a", "/b")))
        for _ in range(2):
            assert sum(await swarm.ask_all("collect")) == 4
        status = await swarm.status()
        assert list(status) == [0, 1, 2, 3]
        for peer in status.values():
            assert {topic for topic, state in peer["topics"].items() if "ranked" in state} == {
                "/a",
                "/b",
            }
        census = await swarm.census()
        assert list(census.looks) == [0, 1, 2, 3]
        assert {look.topics for look in census.looks.values()} == {2}
        assert census.connections_made > 0 and census.cpu_seconds > 0
        assert census.causes["join request"] >= 3
        with pytest.raises(SwarmError, match="KeyError"):
            await swarm.workers[0].ask("nonsense")
    assert [worker.process.returncode for worker in swarm.workers] == [0, 0]
