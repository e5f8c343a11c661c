"""Where the experiments are found: every module of `weft/lab/experiments`."""

from __future__ import annotations

import fnmatch
import pkgutil
from collections.abc import Mapping, Sequence
from difflib import get_close_matches
from functools import cache
from importlib import import_module

from weft.lab import experiments
from weft.lab.experiment import AnyEntry


class UnknownExperiment(Exception):
    """No experiment has this id; the text lists what there is."""


@cache
def all_entries() -> Mapping[str, AnyEntry]:
    """Every entry by its id, in the order of the files' names."""
    found: dict[str, AnyEntry] = {}
    for module in sorted(each.name for each in pkgutil.iter_modules(experiments.__path__)):
        if module.startswith("_"):
            continue
        for entry in import_module(f"{experiments.__name__}.{module}").ENTRIES:
            if entry.id in found:
                raise ValueError(f"two experiments have the id {entry.id}")
            found[entry.id] = entry
    return found


def matching(
    patterns: Sequence[str], known: Mapping[str, AnyEntry] | None = None
) -> list[AnyEntry]:
    """The entries that ids, or patterns such as `tera-*`, name; in the registry's order."""
    known = all_entries() if known is None else known
    wanted: set[str] = set()
    for pattern in patterns:
        hits = fnmatch.filter(known, pattern)
        if not hits:
            close = get_close_matches(pattern, known, n=1)
            hint = f" (did you mean {close[0]!r}?)" if close else ""
            raise UnknownExperiment(
                f"no experiment is called {pattern!r}{hint}\nThere are: {', '.join(known)}"
            )
        wanted.update(hits)
    return [entry for name, entry in known.items() if name in wanted]
