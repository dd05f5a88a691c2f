"""A run measures what can be measured, and names the rest with its reason."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from benchmarks.peers import __main__ as benchmark
from benchmarks.peers import subjects
from benchmarks.peers.conversion import Converted
from benchmarks.peers.tools import FailedError
from benchmarks.peers.variants import Variant
from tests.benchmarks.quality_per_byte.engines.support import PYCODE

GOOD, UNCONVERTED, UNSTARTED = (
    Variant("peer", name, 8, "") for name in ("good", "unconverted", "unstarted")
)


class Worker:
    """Takes a tenth of a second for everything."""

    about = {"version": "1"}  # noqa: RUF012 - nobody changes it

    def ask(self, operation: str, **arguments: Any) -> dict[str, Any]:
        return {"seconds": 0.1, "peak_rss": 1_000_000}


@pytest.fixture
def peers(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """One peer that works, one that cannot be converted and one that does not start."""

    def convert(variant: Variant, *_: Any) -> Converted:
        if variant is UNCONVERTED:
            raise FailedError("tool ended with 1: no such architecture")
        return Converted(tmp_path, 1.0, 100, 100)

    @contextmanager
    def started(command: list[str]) -> Iterator[Worker]:
        if "unstarted" in command:
            raise FailedError("the worker ended with 1: out of memory")
        yield Worker()

    @contextmanager
    def copy(model: Converted, root: Path) -> Iterator[Path]:
        yield model.path

    monkeypatch.setattr(benchmark.variants, "VARIANTS", (GOOD, UNCONVERTED, UNSTARTED))
    monkeypatch.setattr(benchmark.variants, "worker_command", lambda v, *_: [v.format])
    monkeypatch.setattr(benchmark.environments, "binaries", lambda *_: tmp_path)
    monkeypatch.setattr(benchmark.conversion, "convert", convert)
    monkeypatch.setattr(benchmark.conversion, "fresh_copy", copy)
    monkeypatch.setattr(benchmark.measuring, "started", started)
    given = [str(PYCODE), "--workdir", str(tmp_path), "--rounds", "2", "--prompt", "8"]
    monkeypatch.setattr(sys, "argv", ["peers", *given])


@pytest.mark.usefixtures("peers")
def test_what_fails_is_named_once_with_its_reason_and_the_rest_goes_on() -> None:
    run = benchmark.measure(benchmark.arguments())
    assert [row["format"] for row in run.rows] == ["good"]
    assert run.rows[0]["prefill"] == 80.0
    assert len(run.rows[0]["turns"]["prefill"]) == 2 * 2
    assert [(one["format"], one["reason"]) for one in run.missing] == [
        ("unconverted", "tool ended with 1: no such architecture"),
        ("unstarted", "the worker ended with 1: out of memory"),
    ]


def test_a_folder_or_a_real_model_and_not_both(monkeypatch: pytest.MonkeyPatch) -> None:
    for given in ([], [str(PYCODE), "--model", "gemma-3-270m"], ["--model", "gpt-9"]):
        monkeypatch.setattr(sys, "argv", ["peers", *given])
        with pytest.raises(SystemExit):
            benchmark.arguments()


def test_tokens_of_a_folder_have_their_texts() -> None:
    subject = subjects.folder_subject(PYCODE)
    assert (subject.token_text("bos"), subject.token_text("eos")) == (
        "<|begin_of_text|>",
        "<|end_of_text|>",
    )
    assert subject.metadata_bytes == 0
    assert subject.calibration is None
