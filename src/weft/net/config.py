"""Settings of a peer on a real network, and of its state machines: frozen, checked when created.

Every default says where it comes from: `paper`, `measured` or `guess`. `Config.load` reads TOML, in
which the nesting of tables is that of the dataclasses: `[network]`, `[protocol.cyclon]` and so on;
`Config.of` takes the same as nested dictionaries.
An unknown key is refused and the nearest known one suggested; a wrong type names the key and what
was expected; a value that the dataclass itself refuses is reported with its table.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping
from dataclasses import field
from typing import TYPE_CHECKING, TypeVar, get_type_hints

import msgspec

from weft.ids import BadId, parse_contact
from weft.net.arguments import FileName, path_in
from weft.net.errors import ConfigError
from weft.protocol import config as protocol_config
from weft.protocol.settings import Settings, require_positive

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

_MIB = 1 << 20
LINGER_MS_MAX = 60_000
"""guess: events that may wait longer are better gathered by the application."""
T = TypeVar("T", bound="DataclassInstance")


class Network(Settings):
    """Where to listen, the peers to enter by, and every limit of the network driver."""

    name: str = "weft"  # peers of different networks refuse each other
    listen: str = "127.0.0.1:0"  # host:port; port 0 takes any free one
    announce: str = ""  # host or host:port told to others; needed with 0.0.0.0 or ::
    join: tuple[str, ...] = ()  # multiaddrs of peers to enter the network by
    metrics_hosts: tuple[str, ...] = ()  # names of this machine that metrics are asked for by

    frame_bytes_max: int = 4 * _MIB  # guess: four payloads of the largest size
    frame_timeout_ms: int = 30_000  # guess: a frame must be complete within this
    unfinished_bytes_max: int = 32 * _MIB  # guess: of all frames that have not come whole
    dial_timeout_ms: int = 5_000  # guess: TCP connect
    handshake_timeout_ms: int = 10_000  # guess: TLS and greetings
    drain_timeout_ms: int = 3_000  # guess: reading on after a goodbye
    leave_timeout_ms: int = 3_000  # guess: flushing everything when the peer closes

    connections_max: int = 512  # guess: about 20 MB when all are in use
    connections_per_ip_max: int = 256  # guess: half of them, made by callers from one address
    idle_ms: int = 15_000  # guess: longer than a cycle, so that a reply finds its connection
    dials_max: int = 32  # guess: connections being made at once
    dial_backoff_ms: int = 1_000  # guess: after a failed dial, doubling …
    dial_backoff_ms_max: int = 30_000  # guess: … up to this
    handshakes_max: int = 256  # guess: callers that have not greeted yet
    handshakes_per_ip_max: int = 128  # guess

    queue_soft_bytes: int = 1 * _MIB  # guess: publishers wait above this, per receiving peer
    queue_hard_bytes: int = 8 * _MIB  # guess: events are dropped above this
    queue_stranger_bytes: int = 4 * _MIB  # guess: the same for a peer without a link …
    queue_strangers_bytes: int = 32 * _MIB  # guess: … and for all of these together
    queue_control_bytes: int = 1 * _MIB  # guess: room for control messages above the hard limit
    queue_patience_ms: int = 2_000  # guess: how long a full queue is waited for
    overload_ms: int = 10_000  # guess: a peer over the hard limit for so long is disconnected

    linger_ms: float = 0.0  # a publisher waits so long for its run to fill: fewer, larger runs

    subscription_events_max: int = 8_192  # guess: notifications waiting for the application
    subscription_bytes_max: int = 16 * _MIB  # guess
    subscription_patience_ms: int = 2_000  # guess: how long a full subscription is waited for

    # guess: TCP gives a connection up when nothing was acknowledged for so long (RFC 5482): longer
    # than the patience of a receiver's queues, for which a slow receiver may stop reading.
    tcp_user_timeout_ms: int = 10_000
    # measured: a connection that a link runs over has broken when nothing at all has come for so
    # long although the system asked (TCP keepalive, see `connection.py`); thus a machine that
    # vanished is noticed within 5 s.
    link_timeout_ms: int = 4_800

    def __post_init__(self) -> None:
        object.__setattr__(self, "linger_ms", float(self.linger_ms))  # 0 is 0.0
        require_positive(self, "network")
        if not 1 <= len(self.name) <= 64:
            raise ValueError("network.name must have 1 to 64 characters")
        if self.frame_bytes_max < 64 << 10:
            raise ValueError("network.frame_bytes_max must be at least 65536")
        if self.frame_bytes_max > self.unfinished_bytes_max:
            raise ValueError("network.unfinished_bytes_max must hold at least one largest frame")
        if self.frame_bytes_max > self.queue_hard_bytes:
            raise ValueError("network.queue_hard_bytes must hold at least one largest frame")
        if self.frame_bytes_max > self.queue_stranger_bytes:
            raise ValueError("network.queue_stranger_bytes must hold at least one largest frame")
        if self.queue_stranger_bytes > self.queue_strangers_bytes:
            raise ValueError(
                "network.queue_stranger_bytes must not exceed network.queue_strangers_bytes"
            )
        if self.queue_soft_bytes > self.queue_hard_bytes:
            raise ValueError("network.queue_soft_bytes must not exceed network.queue_hard_bytes")
        if self.handshakes_per_ip_max > self.handshakes_max:
            raise ValueError("network.handshakes_per_ip_max must not exceed network.handshakes_max")
        if self.link_timeout_ms < 1_000:
            raise ValueError("network.link_timeout_ms must be at least 1000: probes take a second")
        if not 0 <= self.linger_ms <= LINGER_MS_MAX:
            raise ValueError(f"network.linger_ms must be 0 to {LINGER_MS_MAX}")
        for text in self.join:
            try:
                parse_contact(text)
            except BadId as error:
                raise ValueError(f"network.join: {error}") from error

    @property
    def sweep_ms(self) -> int:
        """How often deadlines are looked at: a quarter of the shortest, at most a second."""
        shortest = min(
            self.idle_ms,
            self.handshake_timeout_ms,
            self.frame_timeout_ms,
            self.drain_timeout_ms,
            self.overload_ms,
        )
        return max(5, min(1_000, shortest // 4))


class Config(Settings):
    """All settings of one peer."""

    network: Network = field(default_factory=Network)
    protocol: protocol_config.Config = field(default_factory=protocol_config.Config)

    @classmethod
    def load(cls, path: FileName) -> Config:
        """Read a TOML file; `ConfigError` says which key is wrong and what was expected."""
        path = path_in("the file of settings", path)
        try:
            text = path.read_bytes()
        except OSError as error:
            raise ConfigError(f"cannot read {path}: {error.strerror}") from error
        return parse_toml(text, cls, str(path))

    @classmethod
    def of(cls, settings: Mapping[str, object]) -> Config:
        """Read settings from nested dictionaries, named as in TOML: `{"network": {"name": ""}}`."""
        return from_table(settings, cls, "settings", "")


# --- TOML ---------------------------------------------------------------------------------------


def parse_toml(data: bytes, kind: type[T], source: str) -> T:
    """Read TOML into a dataclass; `source` names the file in errors."""
    import tomllib  # noqa: PLC0415  (most peers have no file of settings)

    try:
        tables = tomllib.loads(data.decode())
    except UnicodeDecodeError as error:
        raise ConfigError(f"{source}: not UTF-8 text ({error.reason})") from error
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"{source}: not valid TOML: {error}") from error
    return from_table(tables, kind, source, "")


def from_table(table: Mapping[str, object], kind: type[T], source: str, path: str) -> T:
    """Make the dataclass `kind` from the table at `path`."""
    hints = get_type_hints(kind)
    known = {field.name: hints[field.name] for field in dataclasses.fields(kind)}
    values = {}
    for key, value in table.items():
        where = f"{path}.{key}" if path else key
        if key not in known:
            raise ConfigError(f"{source}: unknown key '{where}'{_suggestion(str(key), known)}")
        values[key] = _value(value, known[key], source, where)
    try:
        return kind(**values)
    except ValueError as error:
        raise ConfigError(f"{source}: [{path or 'top level'}] {error}") from error


def _value(value: object, kind: object, source: str, where: str) -> object:
    if isinstance(kind, type) and dataclasses.is_dataclass(kind):
        if not isinstance(value, Mapping):
            raise ConfigError(f"{source}: '{where}' must be a table: write [{where}]")
        return from_table(value, kind, source, where)
    try:
        return msgspec.convert(value, kind, strict=True)
    except msgspec.ValidationError as error:
        raise ConfigError(f"{source}: '{where}': {error}, found {value!r}") from error


def _suggestion(key: str, known: Iterable[str]) -> str:
    import difflib  # noqa: PLC0415  (only after a mistake)

    near = difflib.get_close_matches(key, known, n=1)
    if near:
        return f"; did you mean '{near[0]}'?"
    return f"; known keys: {', '.join(known)}"
