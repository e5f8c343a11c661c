"""From TOML to frozen dataclasses, with errors that help.

The nesting of tables is the nesting of the dataclasses. An unknown key is refused and the nearest
known one suggested; a wrong type names the key and what was expected; a value that the dataclass
itself refuses is reported with its table.
"""

from __future__ import annotations

import dataclasses
import difflib
import tomllib
from collections.abc import Mapping
from typing import Any, TypeVar, get_type_hints

import msgspec

from weft.net.errors import ConfigError

T = TypeVar("T")


def parse(data: bytes, kind: type[T], source: str) -> T:
    """Read TOML into a dataclass; `source` names the file in errors."""
    try:
        tables = tomllib.loads(data.decode())
    except UnicodeDecodeError as error:
        raise ConfigError(f"{source}: not UTF-8 text ({error.reason})") from error
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"{source}: not valid TOML: {error}") from error
    return build(tables, kind, source, "")


def build(table: Mapping[str, Any], kind: type[T], source: str, path: str) -> T:
    """Make the dataclass `kind` from the table at `path`."""
    hints = get_type_hints(kind)
    known = {field.name: hints[field.name] for field in dataclasses.fields(kind)}  # type: ignore[arg-type]
    values = {}
    for key, value in table.items():
        where = f"{path}.{key}" if path else key
        if key not in known:
            raise ConfigError(f"{source}: unknown key '{where}'{_suggestion(key, known)}")
        values[key] = _value(value, known[key], source, where)
    try:
        return kind(**values)
    except ValueError as error:
        raise ConfigError(f"{source}: [{path or 'top level'}] {error}") from error


def _value(value: Any, kind: Any, source: str, where: str) -> Any:
    if isinstance(kind, type) and dataclasses.is_dataclass(kind):
        if not isinstance(value, dict):
            raise ConfigError(f"{source}: '{where}' must be a table: write [{where}]")
        return build(value, kind, source, where)
    try:
        return msgspec.convert(value, kind, strict=True)
    except msgspec.ValidationError as error:
        raise ConfigError(f"{source}: '{where}': {error}, found {value!r}") from error


def _suggestion(key: str, known: Mapping[str, Any]) -> str:
    near = difflib.get_close_matches(key, known, n=1)
    if near:
        return f"; did you mean '{near[0]}'?"
    return f"; known keys: {', '.join(known)}"
