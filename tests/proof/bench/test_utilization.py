"""MBU and MFU by hand, and the refusal of what cannot be."""

from __future__ import annotations

import pytest

from optc import registry
from optc.errors import UnavailableError
from optc.proof.bench.result import BenchResult
from optc.proof.bench.throughput import bench
from optc.proof.bench.utilization import (
    LIMIT,
    DisturbedError,
    Instruments,
    measurable,
    with_utilization,
    working_set,
)
from optc.proof.roofline.costs import KernelCost, StepCosts
from optc.runtime.engine import Engine
from optc.system.hardware.cpu_caches import beyond_caches
from tests.proof.bench.fakes import COSTS, FakeMeter
from tests.runtime.support.toy import ToyExecutable, toy_spec
from tests.support.stub import StubBackend

PERCENTILES: dict[str, float | None] = {"p50": 1.0, "p90": 1.0, "p99": 1.0}
#: 20 prompt tokens, 9 new ones: decode is counted at 25 tokens of context.
RESULT = BenchResult(2, 20, 9, 2000.0, 600.0, PERCENTILES, PERCENTILES)


def filled(result: BenchResult, **ceilings: float) -> BenchResult:
    (found,) = with_utilization([result], toy_spec(), Instruments(COSTS, FakeMeter(**ceilings)))
    return found


def test_mbu_counts_weights_once_a_step_and_the_kv_of_every_sequence() -> None:
    """600 tokens/s of 2 sequences are 300 steps/s."""
    assert filled(RESULT).mbu == pytest.approx((1000 + 10 * 25 * 2) * 300 / 1e6)


def test_mfu_counts_the_rows_of_a_prompt_and_its_attention() -> None:
    """100 prompts/s, each of 20 rows and 1 + 2 + … + 20 = 210 pairs."""
    assert filled(RESULT).mfu == pytest.approx((400 * 20 + 8 * 210) * 100 / 2e6)


def test_more_requests_than_a_step_takes_share_steps() -> None:
    """The toy engine steps 8 sequences at most: 100 requests decode 8 at a time."""
    many = BenchResult(100, 20, 9, 2000.0, 600.0, PERCENTILES, PERCENTILES)
    assert filled(many).mbu == pytest.approx((1000 + 10 * 25 * 8) * 75 / 1e6)


def test_what_was_not_measured_has_no_utilization() -> None:
    single = BenchResult(1, 20, 1, 2000.0, None, PERCENTILES, PERCENTILES)
    assert filled(single).mbu is None
    costs = StepCosts("bf16", {"float_matmul_0": KernelCost(1, "bf16", {}, {"T": 1.0})})
    (found,) = with_utilization([RESULT], toy_spec(), Instruments(costs, FakeMeter()))
    assert found.mfu is None


def test_more_than_the_machine_can_do_is_an_error() -> None:
    """MBU is 0.45 at 1 MB/s: at 0.45 / LIMIT of that it is just allowed, below it is not."""
    mbu = filled(RESULT).mbu
    assert mbu is not None
    assert filled(RESULT, read=1.001e6 * mbu / LIMIT).mbu == pytest.approx(LIMIT / 1.001)
    with pytest.raises(DisturbedError) as caught:
        filled(RESULT, read=0.999e6 * mbu / LIMIT)
    assert caught.value.render() == (
        "bench, concurrency 2: MBU 1.05 is above what this machine can do: the ceilings were "
        "disturbed (repeat on an idle machine)"
    )
    assert caught.value.exit_code == 4
    assert caught.value.details["results"][0]["mbu"] > LIMIT
    assert caught.value.details["ceilings"]["read_bytes"] == 4096
    with pytest.raises(DisturbedError, match=r"MFU 4\.\d\d is above"):
        filled(RESULT, int8=0.23e6)


def test_bench_measures_ceilings_before_every_round() -> None:
    meter = FakeMeter(read=1e15, int8=1e15)
    with Engine(lambda: ToyExecutable(toy_spec())) as engine:
        (result,) = bench(
            engine,
            prompt_tokens=6,
            output_tokens=4,
            concurrency=[2],
            rounds=2,
            instruments=Instruments(COSTS, meter),
        )
    assert meter.samples >= 2
    assert result.mbu is not None
    assert result.mfu is not None
    assert 0 < result.mbu < 1
    assert 0 < result.mfu < 1


def test_working_set_is_the_weights_within_what_no_cache_holds() -> None:
    assert working_set(COSTS) == 1000
    large = StepCosts("int8", {"m": KernelCost(1, "int8", {"1": 1e12, "T": 5.0}, {})})
    assert working_set(large) == beyond_caches()


def test_a_backend_may_measure_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "backend", lambda name: StubBackend())
    with pytest.raises(UnavailableError, match="the backend stub measures no ceilings"):
        measurable("stub")
