"""Arguments of the API, read and checked before anything is done with them.

A wrong argument is a `UsageError` that names it, says what it was and what is expected: a program
that passes bytes for a path, or a number for a topic, shall not meet the error of some function
deep inside, nor find out later that the argument was taken for something else.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Set
from typing import TYPE_CHECKING, TypeAlias

from weft.net.errors import UsageError

if TYPE_CHECKING:
    from pathlib import Path  # loaded once a file is named

Topics: TypeAlias = list[str] | tuple[str, ...] | Set[str] | Iterator[str]
"""Several topics, in anything that can be iterated; a text is one topic, never its letters."""
FileName: TypeAlias = str | os.PathLike[str]
Encode: TypeAlias = Callable[[object], bytes | str]
"""Makes a payload of an object that is published."""


def text_in(name: str, given: object) -> str:
    """A text that UTF-8 can write; a plain `str` also where a subclass is given."""
    if not isinstance(given, str):
        raise UsageError(f"{name} is {given!r:.60}; expected a text")
    try:
        str.encode(given)
    except UnicodeEncodeError as error:
        raise UsageError(f"{name} is {given!r:.60}, which UTF-8 cannot write") from error
    return str.__str__(given)


def texts_in(name: str, given: str | Iterable[str] | None) -> tuple[str, ...]:
    """One text, or several, or none."""
    if given is None:
        return ()
    if isinstance(given, str):
        return (given,)
    if isinstance(given, bytes | bytearray) or not isinstance(given, Iterable):
        raise UsageError(f"{name} is {given!r:.60}, which is no text and no list of any")
    return tuple(text_in(name, one) for one in given)


def topics_in(given: str | Topics) -> list[str]:
    """One topic or several, each once; those of a set in their alphabetical order."""
    if isinstance(given, str):
        return [str.__str__(given)]
    if isinstance(given, bytes | bytearray) or not isinstance(given, Iterable):
        raise UsageError(f"expected a topic or a list of topics, not {given!r:.60}")
    several = list(given)
    for one in several:
        if not isinstance(one, str):
            raise UsageError(f"expected a text as topic, not {type(one).__name__} ({one!r:.60})")
    plain = map(str.__str__, several)
    return list(dict.fromkeys(sorted(plain) if isinstance(given, Set) else plain))


def path_in(name: str, given: FileName) -> Path:
    """The path of a file, checked."""
    if not isinstance(given, str | os.PathLike) or not isinstance(os.fspath(given), str):
        raise UsageError(f"{name} is {given!r:.60}; expected the path of a file, as text or Path")
    path = os.fspath(given)
    try:
        encoded = os.fsencode(path)
    except UnicodeEncodeError:
        encoded = b""
    if not encoded or b"\0" in encoded:
        raise UsageError(f"{name} is {path!r:.60}, which no file can be called")
    from pathlib import Path  # noqa: PLC0415  (most peers have no file)

    return Path(path)


def bytes_in(name: str, given: object) -> bytes:
    """Bytes, from any object of bytes."""
    if not isinstance(given, bytes | bytearray | memoryview):
        raise UsageError(f"{name} is {given!r:.60}; expected bytes")
    return bytes(given)


def number_in(name: str, given: object, least: int = 0) -> int:
    """A whole number of at least `least`."""
    if isinstance(given, bool) or not isinstance(given, int) or given < least:
        raise UsageError(f"{name} is {given!r:.60}; expected a number from {least}")
    return int(given)


def check_callable(name: str, given: object) -> None:
    """Refuse an argument that cannot be called."""
    if not callable(given):
        raise UsageError(f"{name} is {given!r:.60}, which cannot be called")
