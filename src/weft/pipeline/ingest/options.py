"""What a user may say about the files beyond their format; and, from that and from the names of
columns, which one is the user, the topic and the time.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from weft.errors import WeftError

SECONDS = "s"
UNITS: dict[str, float] = {SECONDS: 1e6, "ms": 1e3, "us": 1.0, "ns": 1e-3}
"""Microseconds in each unit that a time may be counted in."""
# guess: what such columns are called in data that people have
KNOWN: dict[str, tuple[str, ...]] = {
    "user": ("user", "user_id", "userid", "user_name", "username", "member", "subscriber", "peer"),
    "topic": ("topic", "topic_id", "topicid", "group", "group_id", "community", "page", "channel"),
    "time": (
        "time",
        "timestamp",
        "time_ms",
        "timestamp_ms",
        "ts",
        "date",
        "datetime",
        "created_at",
    ),
}


_WORDS = frozenset(
    {
        *("account", "actor", "artist", "author", "band", "category"),
        *("channel", "client", "community", "contributor", "customer", "date"),
        *("day", "document", "dst", "editor", "event", "fan"),
        *("feed", "film", "follower", "followee", "from", "gid"),
        *("group", "header", "id", "item", "joined", "key"),
        *("label", "list", "listener", "member", "movie", "name"),
        *("node", "object", "owner", "page", "peer", "person"),
        *("player", "post", "product", "reader", "repo", "room"),
        *("since", "song", "source", "src", "subject", "subscriber"),
        *("subscribed", "subreddit", "tag", "target", "time", "timestamp"),
        *("to", "topic", "track", "uid", "user", "username"),
        *("viewer", "when"),
        *("address", "board", "buyer", "club", "course", "created"),
        *("email", "forum", "game", "genre", "handle", "hashtag"),
        *("hour", "login", "mail", "mailing", "month", "newsletter"),
        *("nick", "nickname", "participant", "playlist", "project", "recipient"),
        *("repository", "sender", "show", "site", "student", "subscription"),
        *("team", "theme", "thread", "updated", "visitor", "year"),
        # German
        *("abonnent", "abonnentin", "absender", "artikel", "benutzer", "benutzername"),
        *("datum", "empfänger", "gruppe", "kanal", "kennung", "konto"),
        *("kunde", "kundin", "leser", "leserin", "liste", "mitglied"),
        *("nutzer", "nutzerin", "nutzername", "raum", "seit", "seite"),
        *("spieler", "teilnehmer", "teilnehmerin", "thema", "uhrzeit", "verein"),
        *("verteiler", "zeit", "zeitpunkt", "zeitstempel"),
        # French
        *("abonné", "abonnée", "adresse", "canal", "chaîne", "compte"),
        *("courriel", "depuis", "groupe", "heure", "horodatage", "lecteur"),
        *("membre", "pseudo", "salon", "sujet", "thème", "utilisateur"),
        # Spanish
        *("asunto", "correo", "cuenta", "desde", "fecha", "grupo"),
        *("hora", "lista", "miembro", "página", "participante", "sala"),
        *("suscriptor", "suscriptora", "tema", "usuario", "usuaria"),
    }
)
"""guess: words in the names of columns that have to do with subscriptions"""
_DAY = re.compile(r"(?:19|20)\d\d(?:0[1-9]|1[0-2])(?:0[1-9]|[12]\d|3[01])")
"""A date without dashes; as a number of seconds it would be one in August 1970."""
_CAMEL = re.compile(r"([a-z0-9])([A-Z])")
_SPLIT = re.compile(r"[\W\d_]+")
_NO_NAME = re.compile(r"[\d@:/]")


class BadInput(WeftError):
    """The input cannot be taken as it is; the text says why. Nothing was changed."""


@dataclass(frozen=True)
class Options:
    """Which column is what, and the like; None leaves it to what the file says of itself."""

    user: str | None = None  # a column's name, or its number from 1
    topic: str | None = None
    time: str | None = None
    unit: str | None = None  # one of UNITS
    header: bool | None = None
    separator: str | None = None
    both_ways: bool = False  # an edge list is of friends, not of followers
    user_prefix: str = ""
    topic_prefix: str = ""


# --- which column is what -------------------------------------------------------------------------


def knows_names(cells: Sequence[str]) -> bool:
    """Whether one of these cells is a name that such columns have."""
    names = {name for known in KNOWN.values() for name in known}
    return any(_plain(cell) in names for cell in cells)


def names_both(cells: Sequence[str]) -> bool:
    """Whether one of these cells is a name for users and another one a name for topics."""
    plain = {_plain(cell) for cell in cells}
    return all(not plain.isdisjoint(KNOWN[what]) for what in ("user", "topic"))


def looks_like_header(cells: Sequence[str], below: Sequence[Sequence[str]] = ()) -> bool:
    """Whether these cells name the columns `below` them.

    One known name is enough. Names that are not known are told from data only if there is no doubt,
    because a row that is taken for a header is lost: all of them are made of words that columns are
    called by, and no column has its name as a value; or two columns hold nothing but numbers.
    """
    if knows_names(cells):
        return True
    columns = [[row[place] for row in below if place < len(row)] for place in range(len(cells))]
    called = all(_WORDS & set(_SPLIT.split(_CAMEL.sub(r"\1_\2", cell).lower())) for cell in cells)
    if called and not any(cell in column for cell, column in zip(cells, columns, strict=True)):
        return True
    if any(_is_number(cell) for cell in cells):
        return False
    return sum(bool(column) and all(map(_is_number, column)) for column in columns) > 1


def may_be_header(cells: Sequence[str], below: Sequence[Sequence[str]]) -> bool:
    """Whether these cells may name the columns `below` them although no word tells: each stands
    nowhere else in the sample, and is made like a name."""
    seen = {cell.strip() for row in below for cell in row}
    named = [cell.strip() for cell in cells]
    return len(set(named)) == len(named) and all(
        cell and cell not in seen and not _NO_NAME.search(cell) for cell in named
    )


def _is_number(cell: str) -> bool:
    try:
        float(cell)
    except ValueError:
        return False
    return True


def by_name(file: str, names: Sequence[str], options: Options) -> tuple[int, int, int | None]:
    """The places of user, topic and time among named columns."""
    return (
        _named(file, "user", options.user, names),
        _named(file, "topic", options.topic, names),
        _place(file, "time", options.time, names),
    )


def by_number(file: str, width: int, options: Options) -> tuple[int, int, int | None]:
    """The places of user, topic and time among columns without names: in this order by default."""
    if width < 2:
        raise BadInput(f"{file}: a user and a topic are needed, but there is one column only")
    wanted = (options.user or "1", options.topic or "2", options.time)
    places: list[int | None] = []
    for what, column in zip(KNOWN, wanted, strict=True):
        if column is None:
            places.append(None)
        elif not column.isdecimal() or not 1 <= int(column) <= width:
            raise BadInput(
                f"{file}: no column {column!r} for the {what}; there is no header, and the columns "
                f"are 1 to {width}"
            )
        else:
            places.append(int(column) - 1)
    user, topic, time = places
    assert user is not None and topic is not None
    if time is None and options.time is None and width == 3 and {user, topic} == {0, 1}:
        time = 2
    return user, topic, time


def unit_of(name: str | None, options: Options) -> str:
    """What a time is counted in: as said, or as the column's name ends, or seconds."""
    if options.unit:
        return options.unit
    ending = _plain(name or "").rpartition("_")[2]
    return ending if ending in UNITS else SECONDS


def check_no_days(file: str, times: Iterable[str], name: str | None, options: Options) -> None:
    """Raise `BadInput` if these times, which nobody gave a unit, are dates without dashes."""
    said = options.unit or _plain(name or "").rpartition("_")[2] in UNITS
    known = [time for each in times if (time := each.strip())]
    if known and not said and all(map(_DAY.fullmatch, known)):
        raise BadInput(
            f"{file}: times such as {known[0]!r} are dates, it seems; write them as "
            f"{known[0][:4]}-{known[0][4:6]}-{known[0][6:]}, or say --time-unit if they are numbers"
        )


def _named(file: str, what: str, wanted: str | None, names: Sequence[str]) -> int:
    place = _place(file, what, wanted, names)
    if place is None:
        raise BadInput(
            f"{file}: which column is the {what}? There are: {', '.join(names)}. "
            f"Say it with --{what} NAME"
        )
    return place


def _place(file: str, what: str, wanted: str | None, names: Sequence[str]) -> int | None:
    plain = [_plain(name) for name in names]
    if wanted is not None:
        if wanted in names:
            return list(names).index(wanted)
        if wanted.isdecimal() and 1 <= int(wanted) <= len(names):
            return int(wanted) - 1
        raise BadInput(f"{file}: no column {wanted!r}; there are: {', '.join(names)}")
    return next((plain.index(name) for name in KNOWN[what] if name in plain), None)


def _plain(name: str) -> str:
    return name.strip().strip('"').lower().replace(" ", "_")
