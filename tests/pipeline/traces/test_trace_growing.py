"""Files that grow: spans of whole lines, each line in one of them, whatever the cuts."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from weft.pipeline.traces import follower
from weft.pipeline.traces.follower import Reader, Shrunk, last_line_end
from weft.pipeline.traces.pieces import Part, texts_of


def lines_of(part: Part) -> list[str]:
    return [line for some in texts_of(part) for line in some]


def test_only_whole_lines_are_read(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text("one\ntwo\nthr")
    reader = Reader(tmp_path, (".jsonl",))
    first = reader.latestOffset({}, None)
    assert first == {str(path): 8}
    assert reader.latestOffset(first, None) == first
    path.write_text("one\ntwo\nthree\n")
    other = tmp_path / "b.jsonl"
    other.write_text("four\n")
    second = reader.latestOffset(first, None)
    assert second == {str(path): 14, str(other): 5}
    spans = reader.partitions(first, second)
    assert [line for span in spans for line in lines_of(span.part)] == ["three", "four"]


def test_much_is_read_in_steps(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(follower, "BATCH_BYTES_MAX", 10)
    (tmp_path / "a.jsonl").write_text("x" * 30 + "\n" + "short\n" * 3)
    (tmp_path / "b.jsonl").write_text("late\n")
    reader = Reader(tmp_path, (".jsonl",))
    offset: dict[str, int] = {}
    steps = []
    while (further := reader.latestOffset(offset, None)) != offset:
        spans = reader.partitions(offset, further)
        steps.append([line for span in spans for line in lines_of(span.part)])
        offset = further
    # A line longer than a step is read nevertheless, and no file waits for another.
    assert steps[0] == ["x" * 30, "late"]
    assert sorted(line for step in steps for line in step) == ["late", *["short"] * 3, "x" * 30]
    assert len(steps) > 1


def test_a_file_that_shrinks_is_an_error(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text("one\n")
    with pytest.raises(Shrunk, match="only grow"):
        last_line_end(path, 8, 100)


@given(st.lists(st.text("ab é\r", max_size=5), min_size=1, max_size=12), st.data())
def test_every_line_is_in_exactly_one_span(
    tmp_path_factory: pytest.TempPathFactory, texts: list[str], data: st.DataObject
) -> None:
    path = tmp_path_factory.mktemp("span") / "a.jsonl"
    content = "".join(f"{text}\n" for text in texts).encode()
    path.write_bytes(content)
    cuts = data.draw(st.sets(st.integers(1, max(1, len(content) - 1)), max_size=4))
    edges = [0, *sorted(cut for cut in cuts if cut < len(content)), len(content)]
    found = [
        line for start, end in pairwise(edges) for line in lines_of(Part(str(path), start, end))
    ]
    assert found == texts
