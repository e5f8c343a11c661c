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

import gc
import sys
from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from weft.documents.merkle import Unresolved
    from weft.documents.refusal import Refused
    from weft.errors import WeftError
    from weft.ids import BadId
    from weft.net.api import Peer
    from weft.net.config import Config
    from weft.net.consumer import Consumed, Consumer
    from weft.net.errors import (
        ClosedError,
        ConfigError,
        ControlError,
        DhtError,
        HistoryError,
        IdentityError,
        IsolatedError,
        ListenError,
        LossError,
        MetricsError,
        NotConfirmed,
        UsageError,
    )
    from weft.net.identity import Identity
    from weft.net.life import LifeEvent, LifeEvents
    from weft.net.receipt import Receipt
    from weft.net.subscription import Gap, Notification, Subscription
    from weft.store.car import BadArchive
    from weft.store.cursor import PositionError, PositionGap, PositionUnknown
    from weft.store.interface import (
        NotHeld,
        StoreBusy,
        StoreCorrupt,
        StoreError,
        StoreFull,
        StoreReadOnly,
    )

__version__ = "0.2.0"
"""Shown by greetings and `weft --version`; a test keeps it equal to pyproject's."""

_HOMES = {
    "Unresolved": "weft.documents.merkle",
    "Refused": "weft.documents.refusal",
    "WeftError": "weft.errors",
    "BadId": "weft.ids",
    "Peer": "weft.net.api",
    "Config": "weft.net.config",
    "Consumed": "weft.net.consumer",
    "Consumer": "weft.net.consumer",
    "ClosedError": "weft.net.errors",
    "ConfigError": "weft.net.errors",
    "ControlError": "weft.net.errors",
    "DhtError": "weft.net.errors",
    "HistoryError": "weft.net.errors",
    "IdentityError": "weft.net.errors",
    "IsolatedError": "weft.net.errors",
    "LifeEvent": "weft.net.life",
    "LifeEvents": "weft.net.life",
    "ListenError": "weft.net.errors",
    "Gap": "weft.net.subscription",
    "LossError": "weft.net.errors",
    "MetricsError": "weft.net.errors",
    "NotConfirmed": "weft.net.errors",
    "UsageError": "weft.net.errors",
    "Identity": "weft.net.identity",
    "Receipt": "weft.net.receipt",
    "Notification": "weft.net.subscription",
    "Subscription": "weft.net.subscription",
    "BadArchive": "weft.store.car",
    "PositionError": "weft.store.cursor",
    "PositionGap": "weft.store.cursor",
    "PositionUnknown": "weft.store.cursor",
    "NotHeld": "weft.store.interface",
    "StoreBusy": "weft.store.interface",
    "StoreCorrupt": "weft.store.interface",
    "StoreError": "weft.store.interface",
    "StoreFull": "weft.store.interface",
    "StoreReadOnly": "weft.store.interface",
}

__all__ = [
    "BadArchive",
    "BadId",
    "ClosedError",
    "Config",
    "ConfigError",
    "Consumed",
    "Consumer",
    "ControlError",
    "DhtError",
    "Gap",
    "HistoryError",
    "Identity",
    "IdentityError",
    "IsolatedError",
    "LifeEvent",
    "LifeEvents",
    "ListenError",
    "LossError",
    "MetricsError",
    "NotConfirmed",
    "NotHeld",
    "Notification",
    "Peer",
    "PositionError",
    "PositionGap",
    "PositionUnknown",
    "Receipt",
    "Refused",
    "StoreBusy",
    "StoreCorrupt",
    "StoreError",
    "StoreFull",
    "StoreReadOnly",
    "Subscription",
    "Unresolved",
    "UsageError",
    "WeftError",
    "__version__",
]


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module 'weft' has no attribute {name!r}")
    # Loading makes objects that stay: looking for garbage meanwhile takes 24 of 194 ms (measured).
    collects = gc.isenabled()
    gc.disable()
    try:
        _load_datetime()
        home = import_module(_HOMES[name])
    finally:
        if collects:
            _keep_loaded()
            gc.enable()
    value: object = getattr(home, name)
    globals()[name] = value
    return value


def _load_datetime() -> None:
    """Load `datetime`, and drop its classes written in Python, which those in C replace: they refer
    to each other, so they would stay until a search for garbage goes through everything. measured:
    0.25 MB, of which the modules that follow make use; 0.4 ms."""
    if "datetime" not in sys.modules:
        import_module("datetime")
        gc.collect(0)


def _keep_loaded() -> None:
    """Let all that was loaded count as old: else the next search among young objects goes through
    it, which takes 10 of 120 ms until a program's first event (measured)."""
    if gc.get_freeze_count() == 0:  # a program that froze its own objects wants them to stay so
        gc.freeze()
        gc.unfreeze()


def __dir__() -> list[str]:
    return sorted(__all__)
