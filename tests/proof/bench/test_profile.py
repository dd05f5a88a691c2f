"""Profiles: made-up steps keep the engine's contract; figures follow from times and costs."""

from __future__ import annotations

import pytest

from optc.proof.bench.batches import block_count, step_batch
from optc.proof.bench.profile import Shape, profile, shapes, step_json
from optc.proof.bench.utilization import Instruments
from optc.proof.roofline.measurable import KernelTime, StepTimes
from tests.proof.bench.fakes import COSTS, FakeMeter, FakeProfiler
from tests.runtime.support.toy import ToyExecutable, toy_spec


@pytest.mark.parametrize(("sequences", "rows", "length"), [(1, 16, 16), (3, 1, 20), (2, 5, 7)])
def test_steps_keep_the_contract(sequences: int, rows: int, length: int) -> None:
    """The toy engine checks shapes, types, slots, limits and that no unwritten slot is read."""
    spec = toy_spec((0, 4))
    engine = ToyExecutable(spec)
    engine.allocate_kv((block_count(sequences, length, 4),) * 2, 4)
    batch = step_batch(spec, sequences, rows, length, 4)
    for pool in (*engine.keys, *engine.values):
        pool[:] = 0  # earlier tokens of the context
    logits = engine.step(batch)
    assert logits.shape == (sequences, spec.vocab_size)
    assert batch.kv_lengths.tolist() == [[length] * sequences] * 2
    assert batch.positions[:rows].tolist() == list(range(length - rows, length))


def test_shapes_stay_within_the_engines_limits() -> None:
    spec = toy_spec(max_context=64, max_rows=16, max_sequences=8)
    assert shapes(spec, 512, [1, 8, 16]) == [
        Shape("decode", 1, 1, 64),
        Shape("decode", 8, 1, 64),  # 16 sequences are more than the engine steps
        Shape("prefill", 1, 16, 16),
    ]
    assert shapes(spec, 10, [2]) == [Shape("decode", 2, 1, 10), Shape("prefill", 1, 10, 10)]


def test_figures_of_a_profile() -> None:
    """2 sequences at 30 tokens: 1000 + 600 bytes; 800 + 480 operations."""
    profiler, seen = FakeProfiler(), list[tuple[str, int, int]]()
    spec = toy_spec(block_multiple=16)
    (step,) = profile(
        profiler,
        spec,
        Instruments(COSTS, FakeMeter()),
        [Shape("decode", 2, 1, 30)],
        rounds=3,
        progress=lambda *where: seen.append(where),
    )
    assert profiler.blocks == [((2,), 64)]
    assert seen == [("profile", 0, 1), ("profile", 1, 1)]
    matmul, attention, other = step["kernels"]  # in order of their time
    assert matmul == {
        "name": "int_matmul_0",
        "shape": "20x10",
        "calls": 2,
        "ms": 4.0,
        "share": pytest.approx(0.4),
        "bytes": 1000.0,
        "ops": 800.0,
        "gb_per_s": pytest.approx(1000 / 4e-3 / 1e9),
        "gop_per_s": pytest.approx(800 / 4e-3 / 1e9),
        "roof_ms": pytest.approx(1.0),  # 1000 bytes at 1 MB/s; 800 operations take 0.4 ms
        "of_roof": pytest.approx(0.25),
        "gap_ms": pytest.approx(3.0),
    }
    assert attention["roof_ms"] == pytest.approx(0.6)
    assert (other["name"], other["of_roof"], other["gap_ms"]) == ("add", None, 1.0)
    kernels = step.pop("kernels")
    assert len(kernels) == 3
    assert step == {
        "phase": "decode",
        "sequences": 2,
        "rows": 2,
        "context": 30,
        "step_ms": 10.0,
        "kernel_ms": pytest.approx(7.0),
        "outside_kernels_ms": pytest.approx(3.0),
        "roof_ms": pytest.approx(1.6),
        "gap_ms": pytest.approx(8.4),
        "of_roof": pytest.approx(0.16),
        "mbu": pytest.approx({"median": 0.16, "low": 0.16, "high": 0.16}),  # of 10 kB in 10 ms
        "mfu": pytest.approx({"median": 0.064, "low": 0.064, "high": 0.064}),  # 1280 of 20000
        "call_overhead_us": pytest.approx(1.0),
    }


def test_a_kernel_within_the_cost_of_measuring_has_no_rates() -> None:

    times = StepTimes(1e-3, (KernelTime("int_matmul_0", 2, 0.0),), 1e-6)
    ceilings = {"read": 1e6, "int8": 2e6, "fp32": 1e6}
    step = step_json(Shape("decode", 1, 1, 8), times, toy_spec(), COSTS, ceilings, [])
    assert step["kernels"][0]["gb_per_s"] is None
    assert step["kernels"][0]["of_roof"] is None
    assert step["mbu"] is None  # of no rounds
