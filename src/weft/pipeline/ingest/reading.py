"""What every way of reading files can do, and how most do it: by records.

A reading first *stages* what it parses, so that files are unpacked and parsed once; everything
else is asked of what was staged.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from pyspark.sql import DataFrame, SparkSession

from weft.pipeline import tables
from weft.pipeline.ingest import entries
from weft.pipeline.schemas import RECORD


@dataclass(frozen=True)
class Place:
    """Where a reading works: the files it reads, and the folder for what it makes of them."""

    spark: SparkSession
    links: list[str]
    files: DataFrame  # FILE
    folder: Path


class Reading(ABC):
    """One way to read files; equal ones are run together."""

    format: str

    @property
    @abstractmethod
    def described(self) -> str:
        """What, beside the format, decides what the files mean."""

    @abstractmethod
    def stage(self, place: Place) -> None:
        """Parse the files into the folder."""

    @abstractmethod
    def counts(self, place: Place) -> DataFrame:
        """How many rows each file gave and how many were bad: `COUNTED`."""

    @abstractmethod
    def pairs(self, place: Place) -> DataFrame:
        """Who is in what, by name: `PAIR`."""

    @abstractmethod
    def rejects(self, place: Place) -> DataFrame:
        """The bad rows: `REJECT`."""

    def trace(self, place: Place) -> DataFrame | None:
        """What peers did, if the files say so: `TRACE`."""
        return None


class Records(Reading):
    """Files of records, each of which holds any number of memberships."""

    harmless: ClassVar[tuple[str, ...]] = ()  # problems that say nothing against the format

    @abstractmethod
    def records(self, spark: SparkSession, links: list[str]) -> DataFrame:
        """What the files hold: `RECORD`."""

    def stage(self, place: Place) -> None:
        tables.write(self.records(place.spark, place.links), place.folder)

    def counts(self, place: Place) -> DataFrame:
        return self._staged(place).transform(entries.counted(self.harmless))

    def pairs(self, place: Place) -> DataFrame:
        return self._entries(place).transform(entries.pairs)

    def rejects(self, place: Place) -> DataFrame:
        return self._entries(place).transform(entries.rejects)

    def _entries(self, place: Place) -> DataFrame:
        return self._staged(place).transform(entries.entries(place.files))

    @staticmethod
    def _staged(place: Place) -> DataFrame:
        return tables.read(place.spark, place.folder, RECORD)
