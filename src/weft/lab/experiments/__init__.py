"""The experiments, each in one file: its points, its simulation, what is measured, the picture, and
the claim with the reasons of its bounds.

Their names are known here without importing any of them, since an import needs the packages of the
lab: so a wrong name is reported before these are installed. A file has one experiment of the file's
name, unless it is among `SEVERAL`; `weft.lab.run.all_entries` checks that.
"""

from __future__ import annotations

import fnmatch
import pkgutil
from collections.abc import Collection, Sequence
from difflib import get_close_matches

SEVERAL = {
    "attack": (
        *("attack-poison", "attack-eclipse", "attack-black-hole", "attack-drop", "attack-forge"),
        *("attack-replay", "attack-spam", "attack-lie", "attack-ground"),
    ),
    "crash": ("crash-broken", "crash-silent"),
    "stan_3": ("stan-3", "stan-4"),
    "stan_loss": ("stan-loss", "stan-churn"),
    "tera_3": ("tera-3a", "tera-3b", "tera-3c"),
    "tera_5": ("tera-5a", "tera-5b"),
    "tera_6": ("tera-6a", "tera-6b", "tera-6c", "tera-6d"),
}
"""Files with more than one experiment."""


class UnknownExperiment(Exception):
    """No experiment has this name; the text lists what there is."""


def names_by_file() -> dict[str, tuple[str, ...]]:
    """The names of the experiments in each file, in the order of the files' names."""
    files = sorted(module.name for module in pkgutil.iter_modules(__path__))
    return {file: SEVERAL.get(file, (file.replace("_", "-"),)) for file in files}


def names() -> list[str]:
    """Of all experiments, in that order."""
    return [name for named in names_by_file().values() for name in named]


def chosen(patterns: Sequence[str], known: Collection[str]) -> list[str]:
    """The known names that these names, or patterns such as `tera-*`, mean; in their own order."""
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
    return [name for name in known if name in wanted]
