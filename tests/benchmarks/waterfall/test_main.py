"""A step of the waterfall: its round of requests, and its line of the table."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from benchmarks.peers.subjects import folder_subject
from benchmarks.waterfall import __main__ as benchmark
from benchmarks.waterfall.__main__ import Measured, eager_kv_bytes
from benchmarks.waterfall.steps import STEPS, Step
from benchmarks.waterfall.workload import BATCH, Request
from tests.benchmarks.quality_per_byte.engines.support import PYCODE

REQUESTS = [Request([number, 7], 3) for number in range(2 * BATCH)]


class Slow:
    """Serves nothing, and notes the prompts."""

    def __init__(self) -> None:
        self.prompts: list[list[int]] = []

    def generate(self, requests: list[Request]) -> None:
        self.prompts += [request.prompt for request in requests]


def test_a_round_warms_up_with_another_prompt_and_counts_wanted_tokens(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    served = Slow()

    @contextmanager
    def runner(step: Step, path: Path, threads: int) -> Iterator[Slow]:
        yield served

    monkeypatch.setattr(benchmark, "runner", runner)
    monkeypatch.setattr(benchmark, "seconds_alone", lambda *_: 2.0)
    monkeypatch.setattr(benchmark, "seconds_together", lambda *_, continuous: 8.0)
    one = Measured(STEPS[1], Path("x"), 2_000_000, 64, {"kl_mean": 0.00123456, "top1_agreement": 1})
    for _ in range(2):
        benchmark.measure(one, REQUESTS, 4, 2)
    assert served.prompts == [[7, 0]] * 2, "no prompt that is measured"
    assert one.row() == {
        "step": STEPS[1].name,
        "one": 4 * 3 / 2.0,
        "sixteen": 2 * BATCH * 3 / 8.0,
        "mb": 2.0,
        "kv_bytes_per_token": 64,
        "kl": 0.00123,
        "top1": 1,
    }


def test_pytorch_keeps_keys_and_values_in_float32() -> None:
    config = json.loads((PYCODE / "config.json").read_text())
    values = 2 * config["num_hidden_layers"] * config["num_key_value_heads"] * config["head_dim"]
    assert eager_kv_bytes(folder_subject(PYCODE)) == 4 * values
