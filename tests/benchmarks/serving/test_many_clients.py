"""The verdict after many clients."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import optc
from benchmarks.serving import many_clients
from benchmarks.serving.many_clients import Run, asked, judged

NOTHING = {"num_requests_running": 0.0, "num_requests_waiting": 0.0, "kv_cache_usage_perc": 0.0}
COUNTED = {"s": 1.0, "running": 3, "waiting": 0, "wrong": None}
FLAT = [(float(second), 1e8) for second in range(20)]


@pytest.fixture(autouse=True)
def engine(monkeypatch: pytest.MonkeyPatch) -> None:
    """Says the seed of each request."""

    def generate(prompts: list[Any], params: list[optc.SamplingParams]) -> list[Any]:
        assert [one.seed for one in params] == [1, 2]
        assert prompts == [asked(1)["prompt"], asked(2)["prompt"]]
        return [SimpleNamespace(text=f"text {one.seed}") for one in params]

    @contextmanager
    def load(path: Path) -> Iterator[Any]:
        yield SimpleNamespace(generate=generate)

    monkeypatch.setattr(many_clients.optc, "load", load)


def run(**changes: Any) -> Run:
    outcomes: Counter[str] = Counter({"whole": 2, "left": 1, "status 429": 3})
    given = {"texts": {2: "text 2", 1: "text 1"}, "outcomes": outcomes, "memory": FLAT}
    given["blocks"] = [COUNTED]
    return Run(**{**given, **changes})


def test_a_run_that_is_right() -> None:
    found = judged(Path("a"), run(), NOTHING)
    assert (found["right"], found["different"], found["growth_percent"]) == (True, 0, 0.0)


@pytest.mark.parametrize(
    ("changes", "left"),
    [
        ({"texts": {1: "text 1", 2: "another"}}, NOTHING),
        ({"outcomes": Counter({"whole": 2, "cut": 1})}, NOTHING),
        ({"outcomes": Counter({"whole": 2, "status 500": 1})}, NOTHING),
        ({"memory": [(float(second), 1e8 * (1 + second / 20)) for second in range(20)]}, NOTHING),
        ({}, {**NOTHING, "kv_cache_usage_perc": 0.1}),
        ({}, {}),
        ({"blocks": []}, NOTHING),
        ({"blocks": [COUNTED, {**COUNTED, "wrong": "2 free + 3 held"}]}, NOTHING),
    ],
)
def test_a_run_that_is_not(changes: dict[str, Any], left: dict[str, float]) -> None:
    assert not judged(Path("a"), run(**changes), left)["right"]


def test_requests_are_those_of_their_number() -> None:
    assert asked(7) == asked(7) != asked(8)
    assert asked(7)["prompt"][:24] == asked(12)["prompt"][:24]
