"""The root of every error that weft raises on purpose.

It stands below all rooms, so that an error of any of them (a store's, a document's, the network's)
can be one: `except weft.WeftError` catches all of them.
"""

from __future__ import annotations


class WeftError(Exception):
    """Base of everything that weft raises on purpose; the text says what to do about it."""
