"""What a soak says of its samples."""

from __future__ import annotations

import json
from pathlib import Path
from xml.etree import ElementTree

import pytest

from weft.lab.soak import Sample, Soak, draw, summary, verdict


def sample(place: int, **changed: float | None) -> Sample:
    usual: Sample = {
        "seconds": 5.0 * place,
        "up": 6,
        "published": 25 * place,
        "expected": 100,
        "late": 0,
        "missing": 0,
        "megabytes": 150.0,
        "oldest_megabytes": 50.0,
        "handles": 90,
        "store_megabytes": 1.0 * place,
        "kills": place // 4,
    }
    return {**usual, **changed}  # type: ignore[typeddict-item]


def written(folder: Path, samples: list[Sample]) -> Path:
    (folder / "samples.jsonl").write_text("".join(json.dumps(one) + "\n" for one in samples))
    return folder


def test_a_run_that_stays_as_it_is(tmp_path: Path) -> None:
    out = written(tmp_path, [sample(place) for place in range(12)])
    assert verdict(out) == []
    assert "1200 promised deliveries looked at, 0 of them late, 0 missing; 2 kills" in summary(out)
    assert ElementTree.fromstring(draw(out).read_text()).tag.endswith("svg")


@pytest.mark.parametrize(
    ("samples", "said"),
    [
        (
            [sample(place, megabytes=100.0 * (place + 1)) for place in range(12)],
            "memory of all processes, MB: 500 at first, 950 in the second half",
        ),
        (
            [sample(place, handles=50 * (place + 1)) for place in range(12)],
            "open files and sockets: 250 at first, 475 in the second half",
        ),
        (
            [sample(place, oldest_megabytes=20.0 * (place + 1)) for place in range(12)],
            "memory of the process never killed, MB: 100 at first, 190 in the second half",
        ),
        ([sample(place, missing=place // 11) for place in range(12)], "1 of 1200 promised"),
        ([sample(place, late=1) for place in range(12)], "12 of 1200 promised deliveries took"),
        ([], "too short"),
    ],
)
def test_a_run_that_grows_or_loses(tmp_path: Path, samples: list[Sample], said: str) -> None:
    [problem] = verdict(written(tmp_path, samples))
    assert said in problem


async def test_a_few_seconds_with_real_peers(tmp_path: Path) -> None:
    out = tmp_path / "soak"
    config = {"protocol": {"cyclon": {"cycle_ms": 1_000}}}
    await Soak(4, 2, ["/soak"], config, out).run(6)
    [found] = [json.loads(line) for line in (out / "samples.jsonl").read_text().splitlines()][:1]
    assert found["up"] == 4 and found["published"] > 0
    assert found["megabytes"] > 0 and found["handles"] > 0 and found["store_megabytes"] > 0
