"""The speed of models of speech beside others: what is asked of each, and the table."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np
import pytest

from benchmarks.peers.tools import FailedError
from benchmarks.speech import __main__ as bench
from optc.runtime.audio.wav import Sound

WORKER = """
import json, sys
print(json.dumps({"ready": {"name": "x"}}), flush=True)
for line in sys.stdin:
    asked = json.loads(line)
    texts = [sys.argv[1]] * len(asked["sounds"])
    print(json.dumps({"texts": texts, "seconds": 0.5 * len(texts)}), flush=True)
"""


def test_texts_are_compared_by_their_words() -> None:
    found = bench.figures(["A cat.", "no dog"], ["a cat", "a dog"], ["a cat", "a dog"])
    assert (found["same"], found["sentences"], found["word_error_rate"]) == (1, 2, 0.25)
    assert bench.figures(["a"], ["a"], None)["same"] is None


def test_every_engine_is_a_row_or_a_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "worker.py").write_text(WORKER)

    def command(text: str) -> tuple[str, ...]:
        return (sys.executable, str(tmp_path / "worker.py"), text)

    def broken() -> tuple[str, ...]:
        raise FailedError("it does not build")

    rows = {
        bench.REFERENCE: lambda: command("a cat"),
        "optc int8": lambda: command("a dog"),
        "other": broken,
    }
    spoken = [("a cat", Sound(np.zeros(160, np.float32), 16_000))] * 3
    monkeypatch.setattr(bench, "utterances", lambda: spoken)
    monkeypatch.setattr(bench, "completed", lambda folder, work: folder)
    monkeypatch.setattr(bench.Maker, "makers", lambda self: rows)
    file = tmp_path / "r.json"
    options = ["--workdir", str(tmp_path), "--rounds", "3", "--sounds", "2", "--json", str(file)]
    monkeypatch.setattr(sys, "argv", ["speech", str(tmp_path), *options])
    bench.main()
    lines = capsys.readouterr().out.splitlines()
    assert lines[2:] == [
        "| transformers fp32 | 500 | 0.00 % | 3 of 3 |",
        "| optc int8 | 500 | 50.00 % | 0 of 3 |",
        "| other | it does not build | | |",
    ]
    found = json.loads(file.read_text())
    assert len(found["rows"]["optc int8"]["milliseconds"]) == 3
