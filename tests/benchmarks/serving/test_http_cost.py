"""Counts of a measurement of HTTP."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

pytest.importorskip("starlette", reason="the extra 'serve' is not installed")

from benchmarks.serving.http_cost import (
    FEWEST_TOKENS,
    MOST_TOKENS,
    PROMPT_TOKENS,
    closed_loop,
    http_loop,
    summary,
)
from tests.runtime.support.artifacts import write_artifact
from tests.runtime.support.toy import toy_spec
from tests.serve.processes import serving


def test_a_closed_loop_counts_all_tokens_of_all_clients() -> None:
    asked: list[tuple[int, int]] = []

    async def text(prompt: list[int], new: int) -> AsyncIterator[int]:
        asked.append((len(prompt), new))
        for tokens in (1, 3):
            await asyncio.sleep(0)
            yield tokens

    done = asyncio.run(closed_loop(text, 3, 0.01, os.getpid()))
    assert done.tokens == 4 * len(asked)
    assert len(done.first_s) == len(done.gaps_s) == len(asked)
    assert all(FEWEST_TOKENS <= new <= MOST_TOKENS for _, new in asked)
    assert len({new for _, new in asked}) > 1
    assert done.to_json()["tokens_per_s"] == done.tokens / done.seconds


@pytest.mark.parametrize("interval", ["0", "0.05"])
def test_all_tokens_of_events_are_counted(tmp_path: Path, interval: str) -> None:
    spec = toy_spec((0, 6), vocab=259, max_context=PROMPT_TOKENS + MOST_TOKENS)
    artifact = write_artifact(tmp_path / "toy", vocab=512, spec=spec).path
    with serving(artifact, "--chunk-interval", interval, "--no-access-log") as server:
        host, port = server.url.removeprefix("http://").rsplit(":", 1)
        done = http_loop(host, int(port), 3, 0.01, os.getpid())
    assert len(done.first_s) >= 3
    assert done.tokens >= FEWEST_TOKENS * len(done.first_s)
    assert done.to_json()["client_us"] >= 0


def test_the_figures_are_medians_and_their_ratio() -> None:
    figures = {
        "engine": [{"tokens_per_s": value, "client_us": 0.0} for value in (10.0, 20.0, 90.0)],
        "http": [{"tokens_per_s": value, "client_us": 2.0} for value in (5.0, 10.0, 15.0)],
    }
    assert summary(figures) == {
        "engine": {"tokens_per_s": 20.0, "client_us": 0.0},
        "http": {"tokens_per_s": 10.0, "client_us": 2.0},
        "ratio": {"tokens_per_s": 0.5},
    }
