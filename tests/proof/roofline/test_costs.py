"""Work and costs of a step, counted by hand."""

from __future__ import annotations

import json
from dataclasses import asdict

from optc.proof.roofline.costs import KernelCost, StepCosts, step_work
from tests.proof.bench.fakes import COSTS
from tests.runtime.support.toy import toy_spec


def test_work_of_ragged_rows() -> None:
    """Three new rows at 5 tokens see 3 + 4 + 5; one row at 7 sees 7; a window of 4 cuts both."""
    work = step_work(toy_spec((0, 4)), [3, 1], [5, 7], wanted=2)
    assert work == {
        "1": 1,
        "T": 4,
        "R": 2,
        "kv0": 5 + 7,
        "pairs0": 3 + 4 + 5 + 7,
        "kv1": 5 + 4,  # the oldest of the three rows still sees the first token
        "pairs1": 3 + 4 + 4 + 4,
    }


def test_tokens_behind_all_windows_are_not_read() -> None:
    work = step_work(toy_spec((4,)), [3], [20], wanted=1)
    assert work["kv0"] == 4 + 3 - 1
    assert work["pairs0"] == 3 * 4


def test_costs_add_up_over_kernels() -> None:
    work = step_work(toy_spec(), [1, 1], [6, 8], wanted=2)
    assert COSTS.bytes_of(work) == 1000 + 10 * 14
    assert COSTS.ops_of(work) == 400 * 2 + 8 * 14


def test_roof_is_the_longer_of_bytes_and_operations() -> None:
    work = step_work(toy_spec(), [1, 1], [6, 8], wanted=2)
    matmul, norm = COSTS.kernels["int_matmul_0"], COSTS.kernels["rms_norm_2"]
    assert matmul.roof_s(work, {"read": 1e6, "int8": 1e9, "fp32": 1.0}) == 1000 / 1e6
    assert matmul.roof_s(work, {"read": 1e9, "int8": 1e5, "fp32": 1.0}) == 800 / 1e5
    assert norm.roof_s(work, {"read": 1.0, "int8": 1.0, "fp32": 1.0}) == 0


def test_costs_survive_json() -> None:
    assert StepCosts.from_json(json.loads(json.dumps(asdict(COSTS)))) == COSTS


def test_bytes_of_experts_grow_with_those_that_rows_choose() -> None:
    experts = KernelCost(1, "int8", {"T:2of8": 10.0, "R:2of8": 1.0}, {"T": 4.0})
    costs = StepCosts(
        "int8", {"int_experts_0": experts, "norm_1": KernelCost(1, "fp32", {"1": 5}, {})}
    )
    assert StepCosts.from_json(json.loads(json.dumps(asdict(costs)))) == costs
    assert costs.bytes_of(step_work(toy_spec(), [1], [6], wanted=1)) == 20 + 2 + 5
    assert costs.bytes_of(step_work(toy_spec(), [1, 1], [6, 8], wanted=1)) == 35 + 2 + 5
    assert costs.weight_bytes == 80 + 8 + 5
