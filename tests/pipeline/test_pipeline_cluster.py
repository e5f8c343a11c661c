"""Where a cluster may listen, and what is said before anything is started."""

from __future__ import annotations

from pathlib import Path

import pytest

from weft.pipeline.cluster import ClusterError, Size, join, up


@pytest.mark.parametrize(
    ("host", "why"),
    [
        ("0.0.0.0", "0.0.0.0 means all addresses; name the one"),
        ("192.0.2.7", "no address of this machine"),  # of a network for documentation
        ("no.such.host.invalid", "no address of this machine"),
    ],
)
def test_a_cluster_listens_at_one_address_of_this_machine(
    host: str, why: str, tmp_path: Path
) -> None:
    with pytest.raises(ClusterError, match=why):
        up(tmp_path / "cluster", Size(), host=host)
    assert not (tmp_path / "cluster").exists()


def test_workers_join_what_is_there(tmp_path: Path) -> None:
    with pytest.raises(ClusterError, match="no cluster is described"):
        join(tmp_path, Size(1), "127.0.0.1")
