"""Kernels of mixtures of experts on this machine's CUDA device, by the tests of the CPU's, and an
engine of them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from optc.backend import EngineBuild
from optc.backends.tvm.kernels.experts.float_experts import FloatExperts
from optc.backends.tvm.kernels.experts.int_experts import IntExperts
from optc.backends.tvm.kernels.experts.top_k_router import TopKRouter
from optc.backends.tvm_cuda import BACKEND
from optc.backends.tvm_cuda.kernels.table import device_function
from optc.errors import UnsupportedError
from optc.system.hardware.machine import this_machine
from optc.system.hardware.target import cuda_target
from tests.backends.tvm.engine_driver import OPTIONS, Engine, EngineDriver, OracleDriver
from tests.backends.tvm.experts.cases import case_of, check
from tests.backends.tvm.experts.models import mixture_model
from tests.backends.tvm.kernel_cases import DEVICE
from tests.backends.tvm.kernels.experts import test_combine_experts as combine
from tests.backends.tvm.kernels.experts import test_expert_plan as plan
from tests.backends.tvm.kernels.experts import test_float_experts as floats
from tests.backends.tvm.kernels.experts import test_int_experts as integers
from tests.backends.tvm.kernels.experts import test_top_k_router as router
from tests.support.shared import made_once

#: Ragged N and K; scales of channels and of groups; spans of few rows and of several runs.
INTEGERS = [
    replace(integers.CONFIGS[0], k=100),
    replace(integers.CONFIGS[1], experts=6, chosen=2, asymmetric=False),
    replace(integers.CONFIGS[1], n=70, experts=3, chosen=2, bits=8, bias=True),
]


@pytest.mark.parametrize("config", router.CONFIGS, ids=lambda config: config.scoring)
def test_routers(config: TopKRouter) -> None:
    router.test_matches_float64_whatever_the_batch_mates(config, DEVICE)
    if config.groups in (1, 8):
        router.test_ties_go_to_the_lower_index_and_rows_of_no_numbers_to_different_experts(
            config, DEVICE
        )


def test_the_plan_is_a_stable_sort() -> None:
    plan.test_is_a_stable_sort_with_spans_of_at_most_so_many_rows(DEVICE)


@pytest.mark.parametrize("config", INTEGERS, ids=lambda config: config.name)
def test_integer_experts(config: IntExperts) -> None:
    rows = 70 if config.spread else 70 * config.chosen
    check(case_of(config, rows), DEVICE, 125)


def test_long_spans_of_one_expert() -> None:
    check(case_of(IntExperts(64, 64, experts=2, chosen=1), 300), DEVICE, 125)


@pytest.mark.parametrize("config", [floats.FLOAT, floats.BF16], ids=lambda config: config.name)
def test_float_experts(config: FloatExperts) -> None:
    floats.test_matches_float64_whatever_the_batch_mates(config, DEVICE)


def test_combination() -> None:
    combine.test_matches_float64_whatever_the_batch_mates(DEVICE)


def test_float_zero_points_are_refused() -> None:
    with pytest.raises(UnsupportedError, match="float zero points have no CUDA kernel"):
        device_function("int_experts", integers.CONFIGS[2])


@pytest.fixture(scope="module")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Engine:
    kinds = ("bf16", "int8")

    def build(folder: Path) -> tuple[Path, EngineBuild]:
        folder.mkdir(parents=True, exist_ok=True)
        target = cuda_target(this_machine().sm[0])
        return folder, BACKEND.build(mixture_model(kinds), target, folder, OPTIONS)

    folder, built = made_once(tmp_path_factory, "cuda-experts", build)
    return Engine(folder, mixture_model(kinds), built, BACKEND)


def test_logits_equal_the_function_bodies_in_any_batch(engine: Engine) -> None:
    executable = engine.load()
    ours, oracle = EngineDriver(executable), OracleDriver(engine.model)
    tokens = np.random.default_rng(5).integers(0, 128, (2, 40)).tolist()
    steps = ({0: tokens[0][:37], 1: tokens[1][:5]}, {0: tokens[0][37:38], 1: tokens[1][5:6]})
    logits = []
    for rows in steps:
        expected = oracle.step(rows)
        logits.append(ours.step(rows))
        errors = np.sort(np.abs(logits[-1] - expected).max(axis=1))
        assert np.abs(expected).max() > 1.0
        assert errors[len(errors) // 2] < 2e-3, errors
        assert errors[-1] < 0.1, errors
    alone = EngineDriver(executable).step({1: tokens[1][:6]})
    np.testing.assert_array_equal(alone, np.concatenate([logits[0][37:], logits[1][1:]]))
    executable.close()
