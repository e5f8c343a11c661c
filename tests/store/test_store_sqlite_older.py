"""Stores written by trees before this one are opened, read the same, and go on.

`tests/kit/old_stores.py` wrote them, run with these trees; a name is that of a commit.
"""

from __future__ import annotations

import gzip
import json
import time
from pathlib import Path

import pytest

import weft
from old_stores import CHAT, OWNED, STORES, described
from weft.ids import Topic
from weft.store.sqlite import SqliteStore

NAMES = sorted(path.stem for path in STORES.glob("*.json"))


@pytest.fixture(params=["closed", "crashed"])
def older(request: pytest.FixtureRequest, tmp_path: Path, name: str) -> Path:
    """The store as its peer left it, in order or by a crash."""
    path = tmp_path / "store.db"
    if request.param == "closed":
        path.write_bytes(gzip.decompress((STORES / f"{name}.db.gz").read_bytes()))
    else:
        for end in ("", "-wal"):
            data = (STORES / f"{name}.crashed.db{end}.gz").read_bytes()
            path.with_name(f"store.db{end}").write_bytes(gzip.decompress(data))
    return path


def test_there_are_older_stores() -> None:
    assert len(NAMES) >= 2


@pytest.mark.parametrize("name", NAMES)
def test_an_older_store_reads_as_the_tree_that_wrote_it_reads_it(older: Path, name: str) -> None:
    written = json.loads((STORES / f"{name}.json").read_text())
    assert described(older) == written
    store = SqliteStore(older)
    try:
        assert store.verify() > 20
        for topic, held in written["topics"].items():
            [(_, size)] = store.signers(Topic(topic))
            assert size == held["bytes"]
    finally:
        store.close()
    assert described(older) == written  # also after this tree has added what is its own


@pytest.mark.parametrize("years", [0, 3])
@pytest.mark.parametrize("name", NAMES)
async def test_a_peer_goes_on_from_it(
    older: Path, name: str, years: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    now_ns = time.time_ns()
    monkeypatch.setattr(time, "time_ns", lambda: now_ns + years * 365 * 86_400 * 10**9)
    written = json.loads((STORES / f"{name}.json").read_text())
    before = [payload for _, _, payload in written["topics"][CHAT]["events"]]
    async with weft.Peer.open(store=older) as peer:
        subscription = await peer.subscribe(CHAT, since="beginning")
        assert (await peer.publish(CHAT, "one more")).outcome == "alone"
        got = []
        async for note in subscription:
            got.append(note.payload.decode())
            if len(got) == len(before) + 1:
                break
        assert got == [*before, "one more"]
        info = peer.owned.info(OWNED)
        assert info is not None and "below" in info.sub_topics
        refused = await peer.publish(OWNED, "by another peer")
        assert refused.outcome == "refused"
