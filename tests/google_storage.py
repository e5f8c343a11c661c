"""A server of Google's storage in memory, as far as lakes use one: started by tests, on loopback.

pyarrow speaks its JSON interface, `deltalake` the one in XML. Both see the same objects, and an
object that is wanted new (generation 0) is refused if it is there, by which commits are told apart.
"""

from __future__ import annotations

import json
import re
import sys
import threading
from dataclasses import dataclass, field
from email.utils import formatdate
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, ClassVar
from urllib.parse import parse_qsl, unquote, urlsplit
from xml.sax.saxutils import escape

_OBJECT = re.compile(r"/storage/v1/b/([^/]+)/o/(.+)")
_LIST = re.compile(r"/storage/v1/b/([^/]+)/o")
_UPLOAD = re.compile(r"/upload/storage/v1/b/([^/]+)/o")
_PLAIN = re.compile(r"/([^/]+)/(.+)")
_DAY = "2026-01-01T00:00:00.000Z"


@dataclass
class Held:
    """All objects by bucket and name, and uploads that are under way."""

    objects: dict[tuple[str, str], bytes] = field(default_factory=dict)
    uploads: dict[str, tuple[str, str, bytearray]] = field(default_factory=dict)
    lock: threading.Lock = field(default_factory=threading.Lock)


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    held: ClassVar[Held] = Held()

    def log_message(self, format: str, *args: Any) -> None:
        """Say nothing."""

    def do_GET(self) -> None:
        self._answer()

    do_HEAD = do_PUT = do_POST = do_DELETE = do_GET

    def _answer(self) -> None:
        body = self._body()
        parts = urlsplit(self.path)
        asked = dict(parse_qsl(parts.query, keep_blank_values=True))
        with self.held.lock:
            if found := _UPLOAD.fullmatch(parts.path):
                self._upload(found[1], asked, body)
            elif found := _OBJECT.fullmatch(parts.path):
                self._object((found[1], unquote(found[2])), asked)
            elif found := _LIST.fullmatch(parts.path):
                self._json(self._listed(found[1], asked))
            elif "list-type" in asked:
                self._listed_in_xml(parts.path.strip("/"), asked)
            elif found := _PLAIN.fullmatch(parts.path):
                self._plain((found[1], unquote(found[2])), body)
            else:
                self._send(501)

    # --- JSON -----------------------------------------------------------------------------------

    def _upload(self, bucket: str, asked: dict[str, str], body: bytes) -> None:
        if self.command == "POST":
            number = str(len(self.held.uploads))
            name = asked.get("name") or json.loads(body)["name"]
            self.held.uploads[number] = (bucket, name, bytearray())
            here = f"http://{self.headers['Host']}{urlsplit(self.path).path}"
            self._send(200, location=f"{here}?uploadType=resumable&upload_id={number}")
            return
        bucket, name, received = self.held.uploads[asked["upload_id"]]
        received += body
        if self.headers.get("Content-Range", "").endswith("/*"):  # there is more to come
            self._send(308, range=f"bytes=0-{len(received) - 1}")
            return
        self.held.objects[bucket, name] = bytes(received)
        self._json(self._described((bucket, name)))

    def _object(self, key: tuple[str, str], asked: dict[str, str]) -> None:
        if key not in self.held.objects:
            self._send(404)
        elif self.command == "DELETE":
            del self.held.objects[key]
            self._send(204)
        elif asked.get("alt") == "media":
            self._content(self.held.objects[key])
        else:
            self._json(self._described(key))

    def _described(self, key: tuple[str, str]) -> dict[str, str]:
        size, times = (
            str(len(self.held.objects[key])),
            dict.fromkeys(("timeCreated", "updated"), _DAY),
        )
        known = {"kind": "storage#object", "bucket": key[0], "name": key[1], "size": size}
        return {**known, **times, "generation": "1", "metageneration": "1", "etag": "e"}

    def _names(self, bucket: str, asked: dict[str, str]) -> tuple[list[str], list[str]]:
        """The objects that are asked for, and the folders below the prefix."""
        prefix, mark = asked.get("prefix", ""), asked.get("delimiter")
        names: list[str] = []
        folders: dict[str, None] = {}
        for place, name in sorted(self.held.objects):
            if place != bucket or not name.startswith(prefix):
                continue
            head, found, _ = name[len(prefix) :].partition(mark) if mark else (name, "", "")
            if found:
                folders[prefix + head + found] = None
            else:
                names.append(name)
        return names, list(folders)

    def _listed(self, bucket: str, asked: dict[str, str]) -> dict[str, object]:
        names, folders = self._names(bucket, asked)
        items = [self._described((bucket, name)) for name in names]
        return {"kind": "storage#objects", "items": items, "prefixes": folders}

    # --- XML ------------------------------------------------------------------------------------

    def _listed_in_xml(self, bucket: str, asked: dict[str, str]) -> None:
        names, folders = self._names(bucket, asked)
        said = ["<ListBucketResult><IsTruncated>false</IsTruncated>"]
        for name in names:
            if name > asked.get("start-after", ""):
                size = len(self.held.objects[bucket, name])
                said.append(
                    f"<Contents><Key>{escape(name)}</Key><LastModified>{_DAY}</LastModified>"
                    f"<ETag>e</ETag><Size>{size}</Size></Contents>"
                )
        said += [
            f"<CommonPrefixes><Prefix>{escape(each)}</Prefix></CommonPrefixes>" for each in folders
        ]
        self._send(200, "".join([*said, "</ListBucketResult>"]).encode())

    def _plain(self, key: tuple[str, str], body: bytes) -> None:
        there = key in self.held.objects
        if self.command == "PUT":
            if there and self.headers.get("x-goog-if-generation-match") == "0":
                self._send(412)
                return
            self.held.objects[key] = body
            self._send(200, etag="e", x_goog_generation="1")
        elif not there:
            self._send(404)
        elif self.command == "DELETE":
            del self.held.objects[key]
            self._send(204)
        else:
            self._content(self.held.objects[key])

    # --- what both have -------------------------------------------------------------------------

    def _content(self, content: bytes) -> None:
        known = {"etag": "e", "last_modified": formatdate(usegmt=True), "x_goog_generation": "1"}
        wanted = re.fullmatch(r"bytes=(\d*)-(\d*)", self.headers.get("Range", ""))
        if wanted is None:
            self._send(200, content, **known)
            return
        size = len(content)
        first = int(wanted[1]) if wanted[1] else max(0, size - int(wanted[2]))
        end = min(size, int(wanted[2]) + 1) if wanted[1] and wanted[2] else size
        place = f"bytes {first}-{end - 1}/{size}"
        self._send(206, content[first:end], content_range=place, **known)

    def _json(self, answer: dict[str, Any]) -> None:
        self._send(200, json.dumps(answer).encode(), content_type="application/json")

    def _send(self, status: int, body: bytes = b"", **headers: str) -> None:
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def _body(self) -> bytes:
        if self.headers.get("Transfer-Encoding") != "chunked":
            return self.rfile.read(int(self.headers.get("Content-Length", 0)))
        body = b""
        while size := int(self.rfile.readline().partition(b";")[0], 16):
            body += self.rfile.read(size)
            self.rfile.readline()
        self.rfile.readline()
        return body


if __name__ == "__main__":
    ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1])), Handler).serve_forever()
