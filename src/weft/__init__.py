"""weft: decentralised topic-based publish/subscribe.

    async with weft.Peer.open() as peer:
        sub = await peer.subscribe("/sports/football")
        await peer.publish("/sports/football", b"goal")
        async for note in sub:
            print(note.payload)

This module is the public API and nothing else. Names are loaded on first use, so that importing
a room of the package that needs no network (`weft.rules`, `weft.engine`) does not load one.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from weft.net.api import Peer
    from weft.net.config import Config
    from weft.net.errors import (
        ClosedError,
        ConfigError,
        ControlError,
        DhtError,
        HistoryError,
        IdentityError,
        ListenError,
        UsageError,
        WeftError,
    )
    from weft.net.identity import Identity
    from weft.net.receipt import Receipt
    from weft.net.subscription import Notification, Subscription

__version__ = "0.1.0"
"""Shown by greetings and `weft --version`; a test keeps it equal to pyproject's."""

_HOMES = {
    "Peer": "weft.net.api",
    "Config": "weft.net.config",
    "ClosedError": "weft.net.errors",
    "ConfigError": "weft.net.errors",
    "ControlError": "weft.net.errors",
    "DhtError": "weft.net.errors",
    "HistoryError": "weft.net.errors",
    "IdentityError": "weft.net.errors",
    "ListenError": "weft.net.errors",
    "UsageError": "weft.net.errors",
    "WeftError": "weft.net.errors",
    "Identity": "weft.net.identity",
    "Receipt": "weft.net.receipt",
    "Notification": "weft.net.subscription",
    "Subscription": "weft.net.subscription",
}

__all__ = [
    "ClosedError",
    "Config",
    "ConfigError",
    "ControlError",
    "DhtError",
    "HistoryError",
    "Identity",
    "IdentityError",
    "ListenError",
    "Notification",
    "Peer",
    "Receipt",
    "Subscription",
    "UsageError",
    "WeftError",
    "__version__",
]


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module 'weft' has no attribute {name!r}")
    home = import_module(_HOMES[name])
    value: object = getattr(home, name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
