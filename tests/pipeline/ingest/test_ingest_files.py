"""Files before they are read: which, whether whole, of which format. No Spark is needed."""

from __future__ import annotations

import bz2
import gzip
import hashlib
import lzma
import os
from pathlib import Path
from typing import Any

import pyarrow
import pytest
from deltalake import write_deltalake
from pyarrow import parquet

from weft.pipeline.ingest.files import Inspected, inspect, linked, listed
from weft.pipeline.ingest.formats import FORMATS, guessed
from weft.pipeline.ingest.options import BadInput, Options

TEXT = b"user,topic\n" + b"".join(b"%d,%d\n" % (n, n % 7) for n in range(20_000))
PACK = {"gzip": gzip.compress, "bzip2": bz2.compress}


def file_of(text: str | bytes, name: str = "data") -> Inspected:
    """A file that holds this."""
    content = text.encode() if isinstance(text, str) else text
    return Inspected(name, len(content), "", "", content[: 1 << 16], content[-64:])


@pytest.mark.parametrize("packing", ["", "gzip", "bzip2"])
def test_a_whole_file_is_known_by_its_content(tmp_path: Path, packing: str) -> None:
    path = tmp_path / "whatever"
    path.write_bytes(PACK[packing](TEXT) if packing else TEXT)
    found = inspect(str(path))
    assert (found.problem, found.packing) == ("", packing)
    assert found.sha256 == hashlib.sha256(path.read_bytes()).hexdigest()
    assert found.size == path.stat().st_size
    assert found.lines[:2] == ["user,topic", "0,0"]
    assert found.tail == TEXT[-64:]


@pytest.mark.parametrize("packing", sorted(PACK))
@pytest.mark.parametrize("kept", [0.1, 0.5, 0.999])
def test_an_archive_that_was_cut_off_is_found(tmp_path: Path, packing: str, kept: float) -> None:
    packed = PACK[packing](TEXT)
    path = tmp_path / "cut"
    path.write_bytes(packed[: int(len(packed) * kept)])
    assert inspect(str(path)).problem == f"cut off: the {packing} archive ends in the middle"


@pytest.mark.parametrize("packing", sorted(PACK))
def test_a_damaged_archive_is_found(tmp_path: Path, packing: str) -> None:
    packed = bytearray(PACK[packing](TEXT))
    packed[len(packed) // 2] ^= 0xFF
    path = tmp_path / "damaged"
    path.write_bytes(packed)
    assert inspect(str(path)).problem.startswith((f"damaged {packing} archive", "cut off"))


def test_other_compressions_are_named(tmp_path: Path) -> None:
    path = tmp_path / "data.xz"
    path.write_bytes(lzma.compress(TEXT))
    assert inspect(str(path)).problem.startswith("compressed with xz; unpack it first")


def test_folders_stand_for_the_files_in_them(tmp_path: Path) -> None:
    for name in ("b/two.csv", "b/one.csv", "b/_SUCCESS", "b/.one.csv.crc", "a.csv"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("x")
    found = listed([tmp_path / "b", tmp_path / "a.csv", tmp_path / "b" / "one.csv"])
    assert [path.relative_to(tmp_path).as_posix() for path in found] == [
        "b/one.csv",
        "b/two.csv",
        "a.csv",
    ]
    with pytest.raises(BadInput, match="no such file"):
        listed([tmp_path / "missing"])
    (tmp_path / "empty").mkdir()
    with pytest.raises(BadInput, match="no files"):
        listed([tmp_path / "empty"])


def test_what_links_lead_to_is_listed_once(tmp_path: Path) -> None:
    (tmp_path / "far").mkdir()
    (tmp_path / "far" / "b.csv").write_text("x")
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a.csv").write_text("x")
    (tmp_path / "in" / "itself").symlink_to(tmp_path / "in")
    (tmp_path / "in" / "more").symlink_to(tmp_path / "far")
    (tmp_path / "far" / "back").symlink_to(tmp_path / "in")
    found = listed([tmp_path / "in"])
    assert [path.relative_to(tmp_path / "in").as_posix() for path in found] == [
        "a.csv",
        "more/b.csv",
    ]


def test_what_would_be_missing_without_a_word_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "link.csv").symlink_to(tmp_path / "gone.csv")
    for given in (tmp_path, tmp_path / "link.csv"):
        with pytest.raises(BadInput, match=r"link.csv: a link that leads nowhere"):
            listed([given])
    (tmp_path / "link.csv").unlink()
    os.mkfifo(tmp_path / "pipe")
    for given in (tmp_path, tmp_path / "pipe"):
        with pytest.raises(BadInput, match=r"pipe: neither a file nor a folder"):
            listed([given])
    (tmp_path / "pipe").unlink()
    (tmp_path / "a.csv").write_text("x")
    (tmp_path / "closed").mkdir()
    look = os.scandir

    def refusing(path: str) -> Any:  # root may look everywhere
        if str(path).endswith("closed"):
            raise PermissionError(13, "Permission denied", str(path))
        return look(path)

    monkeypatch.setattr(os, "scandir", refusing)
    with pytest.raises(BadInput, match=r"closed: Permission denied"):
        listed([tmp_path])


def test_a_column_in_the_names_of_folders_is_not_lost(tmp_path: Path) -> None:
    file = tmp_path / "day=2026-11-16" / "part.csv"
    file.parent.mkdir()
    file.write_text("x")
    with pytest.raises(BadInput, match=r"whose column 'day' is in the names of folders"):
        listed([tmp_path])
    assert listed([file]) == [file]


def test_a_lake_beside_its_files_is_none_of_them(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("x")
    (tmp_path / "lake" / "memberships").mkdir(parents=True)
    (tmp_path / "lake" / "memberships" / "rows.parquet").write_text("x")
    assert listed([tmp_path], tmp_path / "lake") == [tmp_path / "a.csv"]


def test_of_a_delta_table_the_files_of_its_last_version_are_listed(tmp_path: Path) -> None:
    for users in (["ann"], ["bob"]):
        rows = pyarrow.table({"user": users, "topic": ["x"]})
        write_deltalake(tmp_path / "table", rows, mode="overwrite")
    assert len(list((tmp_path / "table").glob("*.parquet"))) == 2
    [found] = listed([tmp_path])
    assert parquet.read_table(found).to_pylist() == [{"user": "bob", "topic": "x"}]
    write_deltalake(tmp_path / "parts", rows, partition_by=["topic"])
    with pytest.raises(BadInput, match=r"parts: a Delta table with partitions"):
        listed([tmp_path])
    for log in (tmp_path / "table" / "_delta_log").glob("*.json"):
        log.write_text("{")
    with pytest.raises(BadInput, match=r"table: a Delta table that cannot be read"):
        listed([tmp_path / "table"])


def test_links_have_plain_names(tmp_path: Path) -> None:
    awkward = tmp_path / "a b [1]*.txt"
    awkward.write_bytes(gzip.compress(TEXT))
    [link] = linked([inspect(str(awkward))], tmp_path / "links")
    assert Path(link).name == "000000.gz"
    assert Path(link).read_bytes() == awkward.read_bytes()


WEFT_RECORD = '{"type": "JOIN", "peerID": "x", "timestamp": 1, "join": {"topic": "/a"}}'
GO_RECORD = '{"type": 9, "peerID": "eA==", "timestamp": 1, "join": {"topic": "a"}}'
HISTORY = "\t".join(["enwiki", "revision", "create", *[""] * 67])


@pytest.mark.parametrize(
    ("text", "name", "format_name"),
    [
        ("user,topic\n1,2\n", "x", "csv"),
        ("1,2\n3,4\n", "x", "csv"),
        ("user\ttopic\n1\t2\n", "x", "tsv"),
        ("1\t2\n1\t3\n", "raw.txt", "tsv"),
        ("1 2 3\n", "x.csv", "csv"),
        ('{"user": 1, "topic": 2}\n', "x", "jsonl"),
        (WEFT_RECORD, "x.jsonl", "weft-trace"),
        (GO_RECORD, "x.json", "gossipsub-trace"),
        ("# Directed graph\n1\t2\n", "x.txt", "snap-edges"),
        ("% u v w t\nann bob 1 1e9\n", "x.txt", "snap-edges"),
        ("1\t2\n", "com-lj.ungraph.txt", "snap-edges"),
        ("1\t2\t3\n4\t5\n", "x", "snap-communities"),
        ("1\t2\n", "com-lj.all.cmty.txt", "snap-communities"),
        ('<?xml version="1.0"?>\n<mediawiki xml:lang="en">\n', "x", "mediawiki-xml"),
        (HISTORY, "x.tsv", "mediawiki-history"),
        (b"PAR1\x15\x04", "x", "parquet"),
    ],
)
def test_formats_are_guessed(text: str | bytes, name: str, format_name: str) -> None:
    assert guessed(file_of(text, name)) == format_name


@pytest.mark.parametrize(
    "text",
    [
        "",
        "\n\n",
        "once upon a time\nthere was\n",
        "# Read me\nThis is text\n",
        "# Read me\n\nThe data\nis here below\n",
        '[{"user": "ann", "topic": "cats"}, {"user": "bob", "topic": "dogs"}]\n',
        '[\n{"user": "ann", "topic": "cats"}\n]\n',
    ],
)
def test_what_could_be_anything_is_not_guessed(text: str) -> None:
    with pytest.raises(BadInput):
        guessed(file_of(text))


@pytest.mark.parametrize(
    ("format_name", "text", "options", "said"),
    [
        ("csv", "a b c\n", Options(), "no ',' in its first line"),
        ("csv", "user,thing\n", Options(), "which column is the topic? There are: user, thing"),
        ("csv", "user,topic\n", Options(user="who"), "no column 'who'; there are: user, topic"),
        ("csv", "1,2\n", Options(user="3"), "no column '3' for the user"),
        ("tsv", "", Options(), "empty"),
        ("jsonl", "user,topic\n", Options(), "not JSON lines: it begins with 'user,topic'"),
        ("jsonl", '{"a": 1}', Options(), "which column is the user"),
        ("parquet", "user,topic\n", Options(), "not Parquet"),
        ("parquet", "PAR1 and no end", Options(), "cut off"),
        ("mediawiki-xml", "user,topic\n", Options(), "not a MediaWiki dump"),
        ("mediawiki-xml", "<mediawiki>\n<page>", Options(), "cut off"),
        ("mediawiki-history", "a\tb\n", Options(), "which has 70 columns"),
        ("weft-trace", "user,topic\n", Options(), "not a trace"),
        ("snap-edges", "1 2\n", Options(time="when"), "column 3 or 4"),
    ],
)
def test_a_wrong_format_is_named(format_name: str, text: str, options: Options, said: str) -> None:
    with pytest.raises(BadInput) as caught:
        FORMATS[format_name](file_of(text), options)
    assert said in str(caught.value)
