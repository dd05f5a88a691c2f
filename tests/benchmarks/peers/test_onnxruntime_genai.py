"""What is asked of the two engines, and in which order."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from benchmarks.peers import onnxruntime_genai as benchmark
from benchmarks.peers.conversion import Converted


class Worker:
    """Takes a tenth of a second for all, and notes what it was asked in a list of all workers."""

    def __init__(self, name: str, asked: list[tuple[str, str]]) -> None:
        self.about = {"version": "1"}
        self._name, self._asked = name, asked

    def ask(self, operation: str, **arguments: Any) -> dict[str, Any]:
        self._asked.append((self._name, operation))
        return {"seconds": 0.1}


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[tuple[str, str]]:
    """Nothing is installed, compiled or converted; workers are those above."""
    found: list[tuple[str, str]] = []

    @contextmanager
    def started(command: Sequence[str]) -> Iterator[Worker]:
        yield Worker("genai" if any("genai_worker" in part for part in command) else "optc", found)

    converted = Converted(tmp_path / "genai", 0.0, 0, 0)
    monkeypatch.setattr(benchmark.measuring, "started", started)
    monkeypatch.setattr(benchmark.environments, "ensure", lambda name, root: tmp_path)
    monkeypatch.setattr(benchmark.conversion, "convert", lambda *of: converted)
    monkeypatch.setattr(benchmark, "compile_own", lambda model, root: tmp_path)
    monkeypatch.setattr(benchmark, "with_weights_of", lambda own, genai, output: output)
    (tmp_path / "config.json").write_text(json.dumps({"vocab_size": 50}))
    return found


def test_both_take_turns_in_prefill_and_decoding_of_one_sequence(
    asked: list[tuple[str, str]], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    given = ["command", str(tmp_path), "--rounds", "1", "--prompt", "8", "--new", "40"]
    monkeypatch.setattr("sys.argv", given)
    rows = benchmark.measure(benchmark.arguments())
    operations = ["prefill"] * 2 + ["decode"] * 4
    once = [(name, operation) for operation in operations for name in ("optc", "genai")]
    assert asked == once * 2  # the first time to warm up
    turns = {"prefill": [80.0] * 2, "decode 1": [100.0] * 4}
    rates = {"version": "1", "prefill": 80.0, "decode 1": 100.0, "turns": turns}
    assert rows == [{"engine": name, **rates} for name in ("optc", "onnxruntime-genai")]
