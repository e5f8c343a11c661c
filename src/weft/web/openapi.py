"""The HTTP interface, described for programs: an OpenAPI document, served at /openapi.json."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeAlias

import weft
from weft.web.guard import BODY_BYTES_MAX
from weft.web.stream import HISTORY_MAX, HISTORY_USUAL

Fields: TypeAlias = dict[str, object]

_TEXT: Fields = {"type": "string"}
_LIMIT: Fields = {"type": "integer", "minimum": 1, "maximum": HISTORY_MAX, "default": HISTORY_USUAL}
_EVENT: Fields = {
    "type": "object",
    "description": "One event. The payload is text where it is UTF-8, else base64.",
    "required": ["topic", "publisher", "published_at"],
    "properties": {
        "topic": {"type": "string", "description": "of the subscription or the history"},
        "published_in": {"type": "string", "description": "in a hierarchy perhaps a sub-topic"},
        "payload": _TEXT,
        "payload_base64": {"type": "string", "format": "byte"},
        "headers": {"type": "object", "additionalProperties": _TEXT},
        "publisher": {"type": "string", "description": "its peer id"},
        "published_at": {"type": "number", "description": "seconds since 1970"},
        "event_id": _TEXT,
        "cid": {"type": "string", "description": "of a stored event: its content identifier"},
        "hops": {"type": "integer", "description": "connections it crossed; not in a history"},
        "height": {"type": "integer", "description": "place in the topic's stream, from 1"},
    },
}
_RECEIPT: Fields = {
    "type": "object",
    "required": ["outcome", "topic"],
    "properties": {
        "outcome": {
            "type": "string",
            "description": "taken, sent, alone, queued, no_subscriber, dropped, failed, refused",
        },
        "topic": _TEXT,
        "event_id": _TEXT,
        "access_point": _TEXT,
        "peers": {"type": "integer"},
        "dropped": {"type": "integer"},
        "reason": _TEXT,
        "copies": {"type": "array", "items": _TEXT},
        "above": {"type": "array", "items": {"type": "object"}},
    },
}
_ANY: Fields = {"type": "object", "additionalProperties": True}


def _query(name: str, text: str, *, required: bool = False) -> Fields:
    return {
        "name": name,
        "in": "query",
        "required": required,
        "description": text,
        "schema": _TEXT,
    }


def _path(name: str, text: str) -> Fields:
    return {"name": name, "in": "path", "required": True, "description": text, "schema": _TEXT}


def _answer(text: str, schema: Mapping[str, object], kind: str = "application/json") -> Fields:
    return {"description": text, "content": {kind: {"schema": schema}}}


def _ref(name: str) -> Fields:
    return {"$ref": f"#/components/schemas/{name}"}


def _operation(
    summary: str,
    ok: Fields,
    *parameters: Fields,
    answers: Mapping[str, Fields] | None = None,
    **more: object,
) -> Fields:
    """`answers`: answers that only this path gives, or that it gives in its own form."""
    errors = {status: _error(text) for status, text in _ERRORS.items()}
    all_answers = dict(sorted({"200": ok, **errors, **(answers or {})}.items()))
    return {"summary": summary, "parameters": list(parameters), "responses": all_answers, **more}


def _error(text: str) -> Fields:
    return _answer(text, _ref("Error"))


_ERRORS = {
    "400": "Something in the request is wrong; `error` says what",
    "403": "The request comes from another web page",
    "421": "The name in the Host header is not among those that are served",
    "429": "Too many requests or streams of one client",
    "503": "The peer cannot do it at the moment",
}
_GONE = {"410": _error("The events after that place are not stored any more, or never were here")}
_NOT_THERE = {"404": _error("There is none")}
_TOPIC = _query("topic", "such as /sports/football", required=True)


_LAST: Fields = {
    "name": "Last-Event-ID",
    "in": "header",
    "description": "The last `id` that was read; wins over `since`. 410: the events after it "
    "are not stored any more.",
    "schema": _TEXT,
}
_IN_VAIN: Fields = {"oneOf": [_ref("Receipt"), _ref("Error")]}
_GETS: dict[str, Fields] = {
    "/api/status": _operation(
        "The status of the peer that publishes and subscribes here", _answer("Its status", _ANY)
    ),
    "/api/peers/{peer}": _operation(
        "Everything that one peer tells of itself",
        _answer("Its status and counters", _ANY),
        _path("peer", "its id"),
        answers=_NOT_THERE,
    ),
    "/api/topics": _operation(
        "Topics with how many peers are subscribed and how many events are stored",
        _answer("By topic", _ANY),
    ),
    "/api/history": _operation(
        "Stored events in the stream's order",
        _answer(
            "The events, fewer than asked for where they are large",
            {"type": "object", "properties": {"events": {"type": "array", "items": _ref("Event")}}},
        ),
        _TOPIC,
        _query("after", "a CID, or 'beginning'; without it, the latest ones"),
        {**_query("limit", "how many"), "schema": _LIMIT},
        answers=_GONE,
    ),
    "/api/events": _operation(
        "Subscribe: Server-Sent Events, one for each event of the topic",
        _answer(
            "`data` is an Event, `id` its place. The event `lost` says that the place in "
            "Last-Event-ID is not known any more; its empty `id` makes clients forget that place",
            _ref("Event"),
            "text/event-stream",
        ),
        _TOPIC,
        _query("since", "'now', or 'beginning' for what is stored first"),
        _LAST,
        answers=_GONE,
    ),
    "/api/lab": _operation(
        "Verdicts of experiments that 'weft lab run' has written",
        _answer("The verdicts", {"type": "array", "items": _ANY}),
    ),
    "/api/lab/{id}/figure.svg": _operation(
        "The figure of an experiment",
        _answer("A picture", _TEXT, "image/svg+xml"),
        _path("id", "of the experiment"),
        answers=_NOT_THERE,
    ),
}
_PUBLISH = _operation(
    "Publish the body as an event",
    _answer("What became of it", _ref("Receipt")),
    _TOPIC,
    _query("header", "NAME=VALUE, signed with the event; may be given again"),
    answers={
        "401": _error("The request has no token"),
        "403": _answer("The topic's owners refuse it, or another page asked", _IN_VAIN),
        "413": _error(f"The payload has more than {BODY_BYTES_MAX} bytes"),
        "503": _answer("It could not be published at the moment", _IN_VAIN),
    },
    security=[{"token": []}],
    requestBody={
        "description": f"The payload: any bytes, at most {BODY_BYTES_MAX}",
        "content": {"*/*": {"schema": {"type": "string", "format": "binary"}}},
    },
)


def document() -> Fields:
    """The whole description."""
    paths = {path: {"get": operation} for path, operation in _GETS.items()}
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "weft",
            "version": weft.__version__,
            "description": "Publish and subscribe over plain HTTP. Reading needs no token.",
        },
        "paths": {**paths, "/api/publish": {"post": _PUBLISH}},
        "components": {
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
            "schemas": {
                "Event": _EVENT,
                "Receipt": _RECEIPT,
                "Error": {"type": "object", "required": ["error"], "properties": {"error": _TEXT}},
            },
        },
    }
