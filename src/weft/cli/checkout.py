"""The checkout of weft, which has tests and settings of tools that no installed package has."""

from __future__ import annotations

from pathlib import Path

from weft.cli.problem import Problem


def checkout() -> Path:
    """The root of the checkout that this weft runs from."""
    root = Path(__file__).resolve().parents[3]
    if not (root / "pyproject.toml").is_file() or not (root / "tests").is_dir():
        raise Problem("this works only in a checkout of weft, not in an installed package")
    return root
