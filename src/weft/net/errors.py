"""The errors of a real network.

Two families. A `WeftError` reaches the caller and its text says what to do about it. A `Fault`
is the reason why one connection ended: it is counted under its `counter`, logged, and harms
nothing but that connection.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar, TypeVar

from weft.errors import WeftError
from weft.ids import BadId

T = TypeVar("T")

SECONDS_MAX = 1e9
"""Thirty years; a longer timeout, such as `math.inf`, counts as this one."""


class ConfigError(WeftError):
    """A setting that cannot be used; the text names file, key and what was expected."""


class IdentityError(WeftError):
    """A key file that cannot be read, written or trusted."""


class UsageError(WeftError, ValueError):
    """An argument that cannot be used, or a call that does not fit the peer's settings or state."""


def usable(parse: Callable[[str], T], text: str) -> T:
    """Read a topic, peer id or address that the caller gave; `UsageError` if it is none."""
    if not isinstance(text, str):
        raise UsageError(f"expected a text, not {type(text).__name__} ({text!r:.60})")
    try:
        return parse(str.__str__(text))  # a plain `str` also of an Enum: encoders need one
    except BadId as error:
        raise UsageError(str(error)) from error


def seconds_in(seconds: float | None) -> float | None:
    """A timeout that the caller gave; `UsageError` if it is none."""
    if seconds is None:
        return None
    if isinstance(seconds, bool) or not isinstance(seconds, int | float) or not seconds >= 0:
        raise UsageError(f"a timeout is a number of seconds from 0, not {seconds!r:.60}")
    return float(min(seconds, SECONDS_MAX))


class ListenError(WeftError):
    """The peer could not listen where it was told to."""


class ClosedError(WeftError):
    """The peer or the subscription is closed."""


class IsolatedError(WeftError, TimeoutError):
    """The peer met no other in time; the text says why each address to join by did not answer."""


class NotConfirmed(WeftError):
    """An event did not get as far as `confirm` asked; `outcome` says how far it got, as in a
    receipt, or is "timeout"."""

    def __init__(self, text: str, outcome: str) -> None:
        super().__init__(text)
        self.outcome = outcome


class LossError(WeftError):
    """Events of a subscription were dropped because it was not read; `lost` says how many."""

    def __init__(self, text: str, lost: int) -> None:
        super().__init__(text)
        self.lost = lost


class DhtError(WeftError):
    """No peer took what was to be stored, or too many operations wait already."""


class HistoryError(WeftError):
    """Something about history or owned topics cannot be done; the text says why."""


class MetricsError(WeftError):
    """Metrics cannot be shown; the text says what is missing."""


class ControlError(WeftError):
    """The control socket of a running peer could not be used."""


# --- why one connection ended ------------------------------------------------------------------


class Fault(WeftError):
    """Why a connection was refused or closed."""

    counter: ClassVar[str] = "fault_other"

    def __init_subclass__(cls, counter: str) -> None:
        cls.counter = counter
        FAULTS.append(cls)


FAULTS: list[type[Fault]] = [Fault]
"""All kinds of faults, in the order in which they are counted."""


class TlsFault(Fault, counter="fault_tls"):
    """TLS failed: not TLS at all, too old, refused by the other side, or tampered with."""


class CertificateFault(Fault, counter="fault_certificate"):
    """The certificate does not prove the other side's identity."""


class WrongPeerFault(Fault, counter="fault_wrong_peer"):
    """Another peer answers at this address than the one that was dialled."""


class GreetingFault(Fault, counter="fault_greeting"):
    """Another wire version, another network, or no usable greeting."""


class DoubleFault(Fault, counter="fault_double"):
    """The caller proved to have this peer's own key."""


class FrameFault(Fault, counter="fault_frame"):
    """A frame that is not a message."""


class OversizedFault(FrameFault, counter="fault_oversized"):
    """A frame larger than the limit."""


class TimeoutFault(Fault, counter="fault_timeout"):
    """The other side took too long over a handshake, a greeting or a frame."""


class BrokenFault(Fault, counter="fault_broken"):
    """The connection broke or ended without a goodbye."""


class DialFault(Fault, counter="fault_dial"):
    """No connection could be made."""


class RefusedFault(Fault, counter="fault_refused"):
    """The other side said goodbye before it greeted."""


class DuplicateFault(Fault, counter="fault_duplicate"):
    """Both sides dialled at once; the connection of the smaller peer id stays."""


class OverloadFault(Fault, counter="fault_overload"):
    """The other side does not read what it is sent, or there is no room for it."""


class HandlerFault(Fault, counter="fault_handler"):
    """Handling a message failed; the sender's connection is closed, the peer lives on."""
