"""What README and docs promise is so: examples run, links lead somewhere, lists are complete."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import threading
import tomllib
from pathlib import Path
from types import FrameType

import pytest
from msgspec import Struct

import weft
from processes import PATIENCE_SECONDS
from weft import trace
from weft.cli.main import COMMANDS
from weft.documents.run import RUN_MAX
from weft.net import congestion
from weft.protocol import seam
from weft.store.memory import MemoryStore

ROOT = Path(__file__).resolve().parents[1]
PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")])


def blocks(path: Path, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", path.read_text(), re.S | re.M)


def parts(page: Path) -> set[str]:
    """What the parts of a page are called in links to them."""
    text = re.sub(r"^```.*?^```", "", page.read_text(), flags=re.S | re.M)
    titles = re.findall(r"^#+ (.*)$", text, re.M)
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


def test_the_example_in_the_readme_runs(tmp_path: Path) -> None:
    (example,) = blocks(ROOT / "README.md", "python")
    assert len(example.splitlines()) <= 20
    path = tmp_path / "example.py"
    path.write_text(example)
    done = subprocess.run(
        [sys.executable, path],
        env={**os.environ, "PYTHONPATH": str(ROOT / "src")},
        text=True,
        capture_output=True,
        timeout=PATIENCE_SECONDS,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    first, second = done.stdout.splitlines()
    assert first == "published: taken"
    assert second.startswith("/sports/football: goal!, from 12D3KooW")


@pytest.mark.parametrize("example", blocks(ROOT / "docs" / "api.md", "python"))
def test_an_example_of_the_api_page_runs(example: str, tmp_path: Path) -> None:
    path = tmp_path / "example.py"
    path.write_text(example)
    done = subprocess.run(
        [sys.executable, "-W", "error", path],
        env={**os.environ, "PYTHONPATH": str(ROOT / "src")},
        cwd=tmp_path,
        text=True,
        capture_output=True,
        timeout=PATIENCE_SECONDS,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout


def test_the_api_page_names_every_error_that_is_exported() -> None:
    _, listed = (ROOT / "docs" / "api.md").read_text().split("\n# Errors\n")
    for name in weft.__all__:
        one = getattr(weft, name)
        if isinstance(one, type) and issubclass(one, weft.WeftError) and one is not weft.WeftError:
            assert f"`{name}`" in listed, name


def test_the_api_page_knows_how_much_may_be_on_its_way() -> None:
    mib = congestion.WINDOW_BYTES >> 20
    said = f"{congestion.WINDOW_RUNS} runs of up to {RUN_MAX} events, or {mib} MiB, of a topic"
    assert said in (ROOT / "docs" / "api.md").read_text()


def test_the_readme_opens_with_the_two_commands() -> None:
    (first, *_) = blocks(ROOT / "README.md", "sh")
    assert [line.split("#")[0].strip() for line in first.splitlines()] == [
        "./weft demo",
        "./weft test",
    ]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_links_lead_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\(([^)]+)\)", page.read_text()):
        assert "://" not in target
        file, _, part = target.partition("#")
        found = page.parent / file if file else page
        assert found.exists(), target
        assert not part or part in parts(found), target


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_files_that_are_named_exist(page: Path) -> None:
    for name in re.findall(r"`((?:rules|protocol|net|sim|demo|cli)/\w+\.py)`", page.read_text()):
        assert (ROOT / "src" / "weft" / name).is_file(), name


def test_tests_that_are_named_exist() -> None:
    named = re.findall(
        r"`(tests/[\w/]+\.py)(?:::(\w+))?`", (ROOT / "docs" / "threats.md").read_text()
    )
    assert len(named) > 50
    for path, test in named:
        assert f"def {test}" * bool(test) in (ROOT / path).read_text(), (path, test)


def test_commands_that_are_named_exist() -> None:
    for page in PAGES:
        for command in re.findall(r"(?:`|^\./|`\./)weft ([a-z]+)", page.read_text(), re.M):
            assert command in COMMANDS, f"{page.name}: weft {command}"


def test_every_room_has_its_line_in_the_architecture() -> None:
    text = (ROOT / "ARCHITECTURE.md").read_text()
    for path in sorted((ROOT / "src" / "weft").iterdir()):
        name = f"{path.name}/" if path.is_dir() else path.name
        if path.suffix == ".py" or (path.is_dir() and path.name != "__pycache__"):
            assert f"| `{name}` |" in text, name


@pytest.mark.parametrize("stored", [False, True])
async def test_an_event_goes_the_way_that_the_architecture_tells(
    stored: bool, tmp_path: Path
) -> None:
    page = (ROOT / "ARCHITECTURE.md").read_text().split("## How an event flows")[1]
    page = page.split("## Words")[0]
    tables = page.split("\n\n| step | file |\n")[1:]
    told, more = (re.findall(r"\| `([\w/]+\.py)` \|$", table, re.M) for table in tables)
    assert (len(told), len(more)) == (14, 6)
    on_the_way = {*told, *(more if stored else ())}
    said = " ".join(re.findall(r"What a step only asks.*|Asked on the way.*", page))
    asked = {*re.findall(r"`([\w/]+\.py|rules/|documents/)`", said)} - {"net/receipt.py"}
    source = f"{ROOT / 'src' / 'weft'}{os.sep}"
    visited: set[str] = set()
    holding: set[str] = set()  # files with a function that was given the payload

    def note(frame: FrameType, what: str, _: object) -> None:
        if what == "call" and frame.f_code.co_filename.startswith(source):
            file = frame.f_code.co_filename.removeprefix(source)
            visited.add(file)
            if any(_has(argument, b"hello") for argument in frame.f_locals.values()):
                holding.add(file)

    stores = [tmp_path / name if stored else None for name in ("a.db", "b.db")]
    threading.setprofile(note)  # of threads that begin from now on, such as the stores'
    try:
        async with (
            weft.Peer.open(store=stores[0]) as alice,
            weft.Peer.open(store=stores[1], join=alice.address) as bob,
        ):
            await alice.subscribe("/x")
            events = await bob.subscribe("/x")
            await alice.publish("/x", "the first one enters the topic", confirm="taken")
            await anext(events)
            visited.clear()
            sys.setprofile(note)
            await alice.publish("/x", "hello")
            assert (await anext(events)).payload == b"hello"
    finally:
        sys.setprofile(None)
        threading.setprofile(None)
    assert on_the_way <= visited
    assert not {file for file in holding - on_the_way if not file.startswith(tuple(asked))}


def _has(argument: object, word: bytes) -> bool:
    """Whether an argument is this text, bytes with it, or a message or list with such parts."""
    if isinstance(argument, str | bytes | bytearray):
        return word in (argument.encode() if isinstance(argument, str) else argument)
    if isinstance(argument, seam.Answer):
        return False  # it says what became of the event, and goes back
    if isinstance(argument, Struct):
        return any(_has(getattr(argument, name), word) for name in argument.__struct_fields__)
    return isinstance(argument, tuple | list) and any(_has(one, word) for one in argument)


def test_the_architecture_has_the_layers_that_the_contracts_have() -> None:
    text = (ROOT / "ARCHITECTURE.md").read_text()
    shown = [block.split("\n") for block in re.findall(r"^```\n(.*?)\n```$", text, re.M | re.S)]
    linter = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]
    kept = [
        [re.sub("[()]", "", layer) for layer in contract["layers"]]
        for contract in linter["contracts"]
        if contract["type"] == "layers"
    ]
    assert len(kept) == 2
    assert shown == kept


def test_every_dependency_has_its_reason() -> None:
    text = (ROOT / "ARCHITECTURE.md").read_text().lower()
    requirements = re.findall(
        r'"([A-Za-z0-9-]+)[><=]',
        (ROOT / "pyproject.toml").read_text().split("[project.scripts]")[0],
    )
    assert len(requirements) > 10
    for name in requirements:
        assert name == "setuptools" or f"**{name.lower()}**" in text, name


def test_trace_examples_are_complete_and_true() -> None:
    records = [
        json.loads(line)
        for block in blocks(ROOT / "docs" / "trace.md", "json")
        for line in block.splitlines()
    ]
    assert sorted(record["type"] for record in records) == sorted(trace.KINDS)
    for record in records:
        (field,) = set(record) - {"type", "peerID", "timestamp"}
        assert field.upper() == record["type"].replace("_", ""), record["type"]


def test_settings_that_are_named_exist() -> None:
    config = weft.Config()
    pages = [(ROOT / "docs" / name).read_text() for name in ("operating.md", "backpressure.md")]
    named = re.findall(r"`((?:network|protocol)(?:\.\w+)+)", "".join(pages))
    assert len(named) > 5
    for name in named:
        value: object = config
        for part in name.split("."):
            value = getattr(value, part)


async def test_metrics_that_are_named_exist() -> None:
    pages = [(ROOT / "docs" / name).read_text() for name in ("operating.md", "backpressure.md")]
    named = [metric for page in pages for metric in re.findall(r"`(weft_\w+)`", page)]
    assert len(named) > 5
    async with weft.Peer.open(store=MemoryStore()) as peer:
        served = set(re.findall(r"^# TYPE (\w+)", peer.metrics(), re.M))
    assert set(named) <= served
