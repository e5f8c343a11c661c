"""A peer's identity: an Ed25519 key pair, in memory or in a file that only its owner can read.

The public key is the `PeerId`; there is no registry and nothing to ask for. The file is the
usual PKCS#8 PEM. It is created complete or not at all: written under another name, flushed, and
linked into place, which fails if the name is taken, so two processes that start at once with the
same path end up with one key and no key is overwritten.

Beside a key file weft keeps `<key>.incarnation`, the number of the identity's last life, so that
lives are numbered upwards even when the clock is set back between two of them.

One key is one peer: two processes with the same key would end each other's connections, and each
would take the other's events for its own. So a running peer holds a lock on its key file, which
ends with its process, and a second peer is refused. (`pool.py` notices a copy of the key on another
machine.)
"""

from __future__ import annotations

import logging
import os
import stat
import time
from typing import TYPE_CHECKING, BinaryIO

from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from weft import private
from weft.documents.signature import SEED_BYTES, key_pair, sign
from weft.ids import peer_text
from weft.net.arguments import FileName, path_in
from weft.net.errors import IdentityError

if TYPE_CHECKING:
    from pathlib import Path  # loaded once a file is named

log = logging.getLogger("weft.net")

_FILE_BYTES_MAX = 16_384  # guess: a PEM key has about 120 bytes; anything long is not one


class Identity:
    """A private key and the peer id that follows from it.

    Keys are libsodium's here: OpenSSL's Ed25519 (`cryptography`), beside it, is 0.3 MB of a process
    (measured), and only reads and writes the files."""

    def __init__(self, seed: bytes, path: Path | None = None) -> None:
        self.peer, self._secret = key_pair(seed)
        self._locked: BinaryIO | None = None  # the key file, while a running peer holds it
        self.path = path

    def __repr__(self) -> str:
        return f"Identity({peer_text(self.peer)})"

    @classmethod
    def generate(cls) -> Identity:
        """A fresh identity that lives in memory only."""
        return cls(os.urandom(SEED_BYTES))

    @classmethod
    def load(cls, path: FileName) -> Identity:
        """Read a key file; refuses one that others may read."""
        path = path_in("the key file", path)
        return cls(_parse(_read_private(path), path), path)

    @classmethod
    def load_or_generate(cls, path: FileName) -> Identity:
        """Read the key file, or write a fresh one where there is none."""
        path = path_in("the key file", path)
        try:
            found = path.exists()
        except OSError as error:  # a name that is too long
            raise IdentityError(f"cannot read key file {path}: {error.strerror}") from error
        if not found:
            fresh = cls(os.urandom(SEED_BYTES), path)
            try:
                fresh.save(path)
            except FileExistsError:
                pass  # another process was quicker: take its key
            else:
                return fresh
        return cls.load(path)

    def save(self, path: FileName) -> None:
        """Write the key with mode 0600; `FileExistsError` if the name is taken."""
        path = path_in("the key file", path)
        from cryptography.hazmat.primitives import serialization  # noqa: PLC0415

        key = Ed25519PrivateKey.from_private_bytes(self._secret[:SEED_BYTES])
        text = key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
        try:
            private.make_folder(path.parent)
            private.write(path, text, replace=False)
        except OSError as error:
            if isinstance(error, FileExistsError) and path.exists():
                raise
            raise IdentityError(f"cannot write key file {path}: {error.strerror}") from error

    def sign(self, data: bytes) -> bytes:
        return sign(data, self._secret)

    def hold(self) -> None:
        """Lock the key for one peer; `IdentityError` if another peer on this machine runs with the
        same file."""
        if self.path is None:
            return
        stranger = private.stranger_on_the_way(self.path)
        if stranger is not None:
            log.warning("%s can be written by others: they could exchange %s", stranger, self.path)
        busy = IdentityError(
            f"a peer is running already with the key {self.path}; one key is one peer: stop that "
            "one, or give this one a key (a --home) of its own"
        )
        file = self.path.open("rb")
        if private.lock(file, self.path, busy):
            self._locked = file

    def release(self) -> None:
        """Unlock the key: its peer has closed."""
        if self._locked is not None:
            self._locked.close()
            self._locked = None

    def next_incarnation(self) -> int:
        """A number larger than in any earlier life: the wall clock in milliseconds, or one more
        than the last life's where the clock went back."""
        now = time.time_ns() // 1_000_000
        if self.path is None:
            return now
        record = self.path.with_name(self.path.name + ".incarnation")
        incarnation = max(now, _last_incarnation(record) + 1)
        try:
            private.write(record, f"{incarnation}\n".encode(), replace=True)
        except OSError as error:
            raise IdentityError(f"cannot write {record}: {error.strerror}") from error
        return incarnation


def _read_private(path: Path) -> bytes:
    try:
        with path.open("rb") as file:
            mode = stat.S_IMODE(os.fstat(file.fileno()).st_mode)
            if mode & 0o077:
                raise IdentityError(
                    f"key file {path} may be read by others (mode {mode:04o}); "
                    f"make it private with: chmod 600 {path}"
                )
            return file.read(_FILE_BYTES_MAX)
    except OSError as error:
        raise IdentityError(f"cannot read key file {path}: {error.strerror}") from error


def _parse(data: bytes, path: Path) -> bytes:
    from cryptography.hazmat.primitives import serialization  # noqa: PLC0415

    try:
        key = serialization.load_pem_private_key(data, password=None)
    except (ValueError, TypeError, UnsupportedAlgorithm) as error:
        raise IdentityError(
            f"{path} holds no usable private key (expected an unencrypted PEM Ed25519 key)"
        ) from error
    if not isinstance(key, Ed25519PrivateKey):
        raise IdentityError(f"{path} holds a {type(key).__name__}, but weft needs an Ed25519 key")
    return key.private_bytes_raw()


def _last_incarnation(record: Path) -> int:
    try:
        text = record.read_text()
    except FileNotFoundError:
        return 0
    except (OSError, UnicodeDecodeError) as error:
        raise IdentityError(f"cannot read {record}: {error}") from error
    if not text.strip().isdecimal():
        raise IdentityError(f"{record} should hold one number; remove it if the clock is right")
    return int(text)
