"""Keys are private, whole, and never overwritten; lives are numbered upwards."""

from __future__ import annotations

import os
import stat
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec

import weft
from weft.ids import peer_text
from weft.net.errors import IdentityError
from weft.net.identity import Identity


def test_key_file_is_private_even_under_an_open_umask(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "peer.key"
    before = os.umask(0)
    try:
        identity = Identity.load_or_generate(path)
        identity.next_incarnation()
    finally:
        os.umask(before)
    for file in path.parent.iterdir():
        assert stat.S_IMODE(file.stat().st_mode) == 0o600, file
    assert sorted(file.name for file in path.parent.iterdir()) == [
        "peer.key",
        "peer.key.incarnation",
    ]


def test_identity_is_the_same_after_loading(tmp_path: Path) -> None:
    path = tmp_path / "peer.key"
    first = Identity.load_or_generate(path)
    again = Identity.load_or_generate(path)
    assert first.peer == again.peer
    assert again.sign(b"x") == first.sign(b"x")
    assert peer_text(first.peer).startswith("12D3KooW")


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o666])
def test_a_key_that_others_may_read_is_refused(tmp_path: Path, mode: int) -> None:
    path = tmp_path / "peer.key"
    Identity.load_or_generate(path)
    path.chmod(mode)
    with pytest.raises(IdentityError, match="chmod 600"):
        Identity.load(path)


def test_an_existing_key_is_not_overwritten(tmp_path: Path) -> None:
    path = tmp_path / "peer.key"
    kept = Identity.load_or_generate(path)
    with pytest.raises(FileExistsError):
        Identity.generate().save(path)
    assert Identity.load(path).peer == kept.peer
    assert list(tmp_path.iterdir()) == [path]  # nothing left behind


def test_processes_that_start_together_share_one_key(tmp_path: Path) -> None:
    path = tmp_path / "peer.key"
    with ThreadPoolExecutor(8) as threads:
        peers = list(threads.map(lambda _: Identity.load_or_generate(path).peer, range(16)))
    assert set(peers) == {Identity.load(path).peer}


def test_files_that_are_no_key_say_so(tmp_path: Path) -> None:
    path = tmp_path / "peer.key"
    with pytest.raises(IdentityError, match="cannot read"):
        Identity.load(path)
    path.write_bytes(b"not a key")
    path.chmod(0o600)
    with pytest.raises(IdentityError, match="no usable private key"):
        Identity.load(path)
    other = ec.generate_private_key(ec.SECP256R1()).private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )
    path.write_bytes(other)
    with pytest.raises(IdentityError, match="needs an Ed25519 key"):
        Identity.load(path)


def test_a_key_that_cannot_be_written_says_so(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(IdentityError, match="cannot write"):
        Identity.load_or_generate(tmp_path / "file" / "peer.key")


def test_lives_are_numbered_upwards_even_if_the_clock_goes_back(tmp_path: Path) -> None:
    path = tmp_path / "peer.key"
    first = Identity.load_or_generate(path).next_incarnation()
    assert first > 1_600_000_000_000  # milliseconds since 1970
    assert Identity.load(path).next_incarnation() > first
    tomorrow = first + 86_400_000
    (tmp_path / "peer.key.incarnation").write_text(f"{tomorrow}\n")
    assert Identity.load(path).next_incarnation() == tomorrow + 1
    assert Identity.load(path).next_incarnation() == tomorrow + 2
    (tmp_path / "peer.key.incarnation").write_text("soon")
    with pytest.raises(IdentityError, match="one number"):
        Identity.load(path).next_incarnation()


async def test_one_key_file_is_one_peer(tmp_path: Path) -> None:
    key = tmp_path / "peer.key"
    async with weft.Peer.open(key=key, store=tmp_path / "store.db") as peer:
        with pytest.raises(IdentityError, match="a peer is running already with the key"):
            await weft.Peer.start(key=key, store=tmp_path / "store.db")
        assert (await peer.publish("/a", b"x")).outcome == "queued"  # it goes on
    async with weft.Peer.open(key=key) as again:
        assert again.id == peer.id


def test_a_lock_ends_with_the_life(tmp_path: Path) -> None:
    first, second = (Identity.load_or_generate(tmp_path / "peer.key") for _ in range(2))
    first.hold()
    with pytest.raises(IdentityError, match=r"give this one a key \(a --home\) of its own"):
        second.hold()
    first.release()
    second.hold()
    second.release()
    Identity.generate().hold()  # in memory: there is nothing to lock


def test_a_folder_that_others_can_write_is_told(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    identity = Identity.load_or_generate(tmp_path / "open" / "peer.key")
    identity.hold()
    identity.release()
    assert not caplog.text
    (tmp_path / "open").chmod(0o777)
    identity.hold()
    identity.release()
    assert f"{tmp_path / 'open'} can be written by others" in caplog.text
