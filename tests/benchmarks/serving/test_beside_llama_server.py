"""Both sides of the comparison by servers that are none."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from benchmarks.serving import beside_llama_server
from benchmarks.serving.beside_llama_server import measured
from optc.proof.bench.online.ask import Answer, Failure
from optc.proof.bench.online.load import Load
from optc.proof.bench.online.stream_times import StreamTimes

NEW = 4


def answer(gap_s: float, tokens: int = NEW, failure: Failure | None = None) -> Answer:
    came = [gap_s * (n + 1) for n in range(tokens)]
    times = StreamTimes(0.0, 0.0, came, gap_s * tokens, tokens=tokens)
    return Answer(times, prompt_tokens=3, counted=True, failure=failure)


@pytest.mark.parametrize(
    ("theirs", "right"),
    [
        (answer(0.02), True),
        (answer(0.02, tokens=NEW - 1), False),
        (answer(0.02, failure=Failure("cut", "the stream ended")), False),
    ],
)
def test_rounds_of_both_in_turns(
    monkeypatch: pytest.MonkeyPatch, theirs: Answer, right: bool
) -> None:
    asked: list[tuple[str, int]] = []

    @contextmanager
    def serves(name: str) -> Iterator[str]:
        yield name

    async def loaded(url: str, args: Any, clients: int, seed: int) -> Load:
        asked.append((url, seed))
        return Load([answer(0.01), theirs if url == "llama" else answer(0.01)], 0.0)

    monkeypatch.setattr(beside_llama_server, "ours", lambda artifact: serves("optc"))
    monkeypatch.setattr(beside_llama_server, "llama_server", lambda args, n: serves("llama"))
    monkeypatch.setattr(beside_llama_server, "loaded", loaded)
    args = argparse.Namespace(artifact=None, rounds=2, new=NEW)
    found = measured(args, 2)
    assert asked == [
        ("optc", 0),
        ("llama", 0),
        ("optc", 1),
        ("llama", 1),
        ("optc", 2),
        ("llama", 2),
    ]
    assert found["right"] == right
    if right:
        assert found["ratio"]["tokens_per_s"] == pytest.approx(2.0, abs=0.01)
        assert found["optc"]["ttft_p50_ms"] == pytest.approx(10.0, abs=0.5)
