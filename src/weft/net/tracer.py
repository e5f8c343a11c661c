"""The driver's part of the trace: what was sent, received and dropped, and the connections.

A tracer exists only while tracing is on, so that the hot path asks one question. The file tells
which peers this one talks to and what about, so only its owner can read it.

If the file cannot be written any more, as on a full disk, the trace ends with a line in the log,
and the peer works on without it.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING

from weft import private, trace
from weft.errors import WeftError
from weft.ids import PeerId, peer_text
from weft.protocol.delivery import DROP_RPC, RECV_RPC, SEND_RPC
from weft.protocol.wire import Message

if TYPE_CHECKING:
    from pathlib import Path  # loaded once a file is named

log = logging.getLogger("weft.net")

_BUFFER_BYTES = 1 << 18


class Tracer:
    """Writes records of one peer to a file."""

    def __init__(self, me: PeerId, path: Path) -> None:
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            self._file = private.append_to(path, _BUFFER_BYTES)
        except OSError as error:
            raise WeftError(f"cannot write trace {path}: {error.strerror}") from error
        self._path = path
        self._ended = False
        self._me = me
        self._writer = trace.Writer(self._file)

    def write(self, kind: str, fields: Mapping[str, object]) -> None:
        if self._ended:
            return
        try:
            self._writer.write(self._me, time.time_ns(), kind, fields)
        except OSError as error:
            self._end(error)

    def _end(self, error: OSError) -> None:
        """End the trace, since its file cannot be written; the peer goes on."""
        if not self._ended:
            log.error("the trace %s ends here: %s", self._path, error.strerror)
        self._ended = True

    def sent(self, peer: PeerId, message: Message, size: int) -> None:
        self.write(SEND_RPC, {"sendTo": peer_text(peer), "meta": _meta(message, size)})

    def received(self, peer: PeerId, message: Message, size: int) -> None:
        self.write(RECV_RPC, {"receivedFrom": peer_text(peer), "meta": _meta(message, size)})

    def dropped(self, peer: PeerId, message: Message, reason: str) -> None:
        fields = {"sendTo": peer_text(peer), "meta": trace.rpc_meta(message), "reason": reason}
        self.write(DROP_RPC, fields)

    def about_peer(self, kind: str, peer: PeerId) -> None:
        """A connection came up or ended (ADD_PEER, REMOVE_PEER)."""
        self.write(kind, {"peerID": peer_text(peer), "proto": "weft/1"})

    def flush(self) -> None:
        if self._ended:
            return
        try:
            self._file.flush()
        except OSError as error:
            self._end(error)

    def close(self) -> None:
        try:
            self._file.close()
        except OSError as error:
            self._end(error)


def _meta(message: Message, size: int) -> dict[str, object]:
    meta = trace.rpc_meta(message)
    meta["bytes"] = size
    return meta
