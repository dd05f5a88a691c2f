"""Seconds of a compile follow from the sizes of the model and of the texts that passes read."""

from __future__ import annotations

import pytest

from optc.compiling.predictions import compile_time
from optc.compiling.predictions.compile_time import compile_seconds
from optc.ir.pipeline.base import Pass
from optc.passes.quantize.budget.allocate_bits import AllocateBits
from optc.passes.quantize.calibrate import Calibrate
from optc.passes.quantize.propagate.propagate_errors import PropagateErrors
from optc.passes.quantize.quantize_weights import QuantizeWeights
from tests.support.dense_models import dense_model
from tests.support.experts.models import Experts, expert_model

ROUND = QuantizeWeights(bits=8)


def seconds(*passes: Pass, kernel_s: float = 10, layers: int = 2) -> dict[str, float]:
    return compile_seconds(dense_model(layers), passes, kernel_s)


def test_a_pass_takes_as_long_as_its_text() -> None:
    short, long = (seconds(PropagateErrors(windows=n), ROUND) for n in (8, 64))
    plain = seconds(ROUND)
    taken = [found["passes"] - plain["passes"] for found in (short, long)]
    assert taken[1] == pytest.approx(8 * taken[0])
    assert taken[0] > 0
    assert {**long, "passes": 0} == {**plain, "passes": 0}


def test_phases_take_different_times_for_a_token() -> None:
    plain = seconds()["passes"]
    passes = (Calibrate(windows=16), PropagateErrors(windows=16), AllocateBits(windows=16))
    taken = [seconds(one)["passes"] - plain for one in passes]
    assert taken == sorted(taken)
    assert len(set(taken)) == 3


def test_more_weights_take_longer_in_every_stage(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compile_time, "_PACK_RATE", 1.0)
    one = PropagateErrors()
    small, large = (seconds(one, kernel_s=0, layers=n) for n in (1, 3))
    assert all(large[stage] > small[stage] > 0 for stage in small)


def test_kernels_compile_beside_packing(monkeypatch: pytest.MonkeyPatch) -> None:
    assert seconds(kernel_s=12)["build"] - seconds(kernel_s=2)["build"] == pytest.approx(10)
    monkeypatch.setattr(compile_time, "_PACK_RATE", 1.0)
    assert seconds(kernel_s=12) == seconds(kernel_s=2)


def test_experts_are_all_packed_and_some_multiply(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compile_time, "_PACK_RATE", 1.0)
    few, many = (compile_seconds(expert_model(experts=Experts(count=n)), (), 0.0) for n in (4, 8))
    assert many["build"] > few["build"]
    router = 4 * 2 * 32  # more experts, in two layers of width 32
    assert many["gates"] - few["gates"] < compile_time._GATES_RATE * 2 * router


def test_more_threads_take_less_time(monkeypatch: pytest.MonkeyPatch) -> None:
    found = []
    for threads in (2, 8):
        monkeypatch.setattr(compile_time, "usable_threads", lambda threads=threads: threads)
        found.append(seconds(PropagateErrors(), kernel_s=1))
    two, eight = found
    assert eight["passes"] < two["passes"] / 3
    assert (eight["import"], eight["build"]) == (two["import"], two["build"])
