"""What an engine will cost, before it is built."""

from __future__ import annotations

import pytest

from optc.proof.roofline.ceilings import Ceiling
from optc.proof.roofline.costs import KernelCost, StepCosts
from optc.proof.roofline.estimate import (
    EngineEstimate,
    decode_work,
    estimate_json,
    prefill_work,
    speed_bound,
)
from tests.runtime.support.toy import toy_spec

#: A matmul of 1000 bytes a step and 20 operations a row, attention of 10 bytes a token.
COSTS = StepCosts(
    "int8",
    {
        "matmul": KernelCost(1, "int8", {"1": 1000.0}, {"T": 20.0}),
        "attention": KernelCost(1, "fp32", {"kv0": 10.0}, {}),
    },
)
ESTIMATE = EngineEstimate(toy_spec(max_context=64), 4096, COSTS)


def test_a_decode_step_has_one_row_and_a_prompt_all_of_its_own() -> None:
    assert decode_work(ESTIMATE.spec, 50)["T"] == 1
    assert prefill_work(ESTIMATE.spec, 50)["T"] == 50
    assert decode_work(ESTIMATE.spec, 50)["kv0"] == prefill_work(ESTIMATE.spec, 50)["kv0"] == 50


def test_each_kernel_takes_the_longer_of_its_bytes_and_its_operations() -> None:
    slow_reads = {name: Ceiling(best, 1) for name, best in (("read", 1e3), ("int8", 1e9))}
    ceilings = slow_reads | {"fp32": Ceiling(1e9, 1)}
    bound = speed_bound(ESTIMATE, 50, ceilings)
    assert bound is not None
    seconds = 1000 / 1e3 + 50 * 10 / 1e3  # bytes of weights, and of keys and values
    assert bound.decode_tokens_per_s == pytest.approx(1 / seconds)
    assert bound.prefill_tokens_per_s == pytest.approx(50 / seconds)
    slow_sums = {**ceilings, "read": Ceiling(1e9, 1), "int8": Ceiling(10.0, 1)}
    bound = speed_bound(ESTIMATE, 50, slow_sums)
    assert bound is not None
    assert bound.prefill_tokens_per_s == pytest.approx(10 / 20, rel=1e-3)


def test_without_a_ceiling_there_is_no_bound() -> None:
    ceilings = {name: Ceiling(1.0, 1.0) for name in ("read", "int8")}
    assert speed_bound(ESTIMATE, 50, ceilings) is None


def test_json_is_of_at_most_the_context() -> None:
    found = estimate_json(ESTIMATE)
    assert found == {
        "weight_bytes": 4096,
        "kv_bytes_per_token": ESTIMATE.spec.kv_bytes_per_token,
        "context": 64,
        "decode_bytes": 1000 + 64 * 10,
        "prefill_ops_per_token": 20,
        "peak": "int8",
    }
    longer = EngineEstimate(toy_spec(max_context=4096), 1, COSTS)
    assert estimate_json(longer)["context"] == 512
