"""How many messages of each kind were sent, and in which overlay."""

from __future__ import annotations

from dataclasses import dataclass, fields


@dataclass
class Counts:
    """Messages, by what they are for. One request and its reply are two messages."""

    exchange_general: int = 0  # view exchanges in the general overlay
    exchange_topic: int = 0  # view exchanges in topic overlays
    exchange_forced: int = 0  # view exchanges forced by merging partitions
    advert: int = 0  # advertisements, the whole list in one message
    advert_entries: int = 0  # the same, had each topic been a message of its own
    lookup: int = 0  # steps of walks, and answers
    route: int = 0  # events on their way to an access point
    dissemination: int = 0  # events inside topic overlays
    join: int = 0  # walks of newcomers and what they are given
    size: int = 0  # size estimation

    def maintenance(self) -> int:
        """What is sent whether or not anything is published; size estimation apart."""
        exchanges = self.exchange_general + self.exchange_topic + self.exchange_forced
        return exchanges + self.advert + self.join

    def for_events(self) -> int:
        return self.lookup + self.route + self.dissemination

    def total(self) -> int:
        return self.maintenance() + self.for_events()

    def minus(self, earlier: Counts) -> Counts:
        """What was sent since an earlier reading."""
        return Counts(
            **{f.name: getattr(self, f.name) - getattr(earlier, f.name) for f in fields(self)}
        )

    def copy(self) -> Counts:
        return Counts(**self.as_dict())

    def as_dict(self) -> dict[str, int]:
        return {f.name: int(getattr(self, f.name)) for f in fields(self)}
