"""The model of step times recovers known costs, and is measured with legal steps."""

from __future__ import annotations

import itertools
import json
from dataclasses import replace

import pytest
from msgspec import structs

from optc.proof.simulate.measure import fit, measure_step_times
from optc.proof.simulate.step_times import Curve, Rows, Spread, StepTimes
from optc.runtime.executable.executable import KVGroup, LayerKV
from tests.proof.simulate.fakes import step_times
from tests.runtime.support.toy import ToyExecutable, toy_spec

MIXED = [Rows(1, 90), Rows(1, 700), Rows(5, 300), Rows(130, 1000)]


def test_curves_are_linear_between_knots_and_constant_beyond() -> None:
    curve = Curve((1, 3, 5), (10, 20, 0))
    assert [curve.at(x) for x in (0, 1, 2, 3, 4, 5, 6)] == [10, 10, 15, 20, 10, 0, 0]
    assert Curve((4,), (7,)).at(100) == 7


def test_the_time_of_a_step_adds_up() -> None:
    times = step_times(step=1.0, row=0.1, logits=0.01, pair=0.001, host=0.5)
    pairs = 90 + 700 + sum(range(296, 301)) + sum(range(871, 1001))
    expected = 1.0 + 0.1 * 137 + 0.01 * 4 + 0.001 * pairs
    assert times.engine_s(MIXED, 4) == pytest.approx(expected)
    assert times.step_s(MIXED, 4) == pytest.approx(expected + 0.5)
    assert step_times(step=1.0, host=-2.0).step_s(MIXED, 4) == 0


def test_service_adds_to_a_step() -> None:
    times = replace(
        step_times(step=1.0, host=0.5),
        service=Curve((1, 137), (1.0, 2.0)),
        prompt_s=0.25,
        arrival_s=0.125,
    )
    assert times.step_s(MIXED, 4) == pytest.approx(2 * 1.0 + 0.5 + 2 * 0.25)
    assert times.step_s([*MIXED, Rows(7, 7)], 4) == pytest.approx(2 + 0.5 + 3 * 0.25 + 0.125)
    twice = times.slower(2.0)
    assert twice.step_s(MIXED, 4) == pytest.approx(2 * times.step_s(MIXED, 4))


def test_steps_are_held_up_by_chance() -> None:
    times = replace(
        step_times(), spread=(Spread(1.0, (0.5, 1.5)), Spread(4.0, (0.9, 0.9, 0.9, 1.3)))
    )
    assert [times.drawn_s(1.0, chance) for chance in (0.0, 0.49, 0.5, 0.99)] == [0.5, 0.5, 1.5, 1.5]
    assert times.drawn_s(2.0, 0.8) == times.drawn_s(8.0, 0.8) / 4 == 2.6
    assert step_times().drawn_s(2.0, 0.8) == 2.0
    again = StepTimes.from_json(json.loads(json.dumps(times.to_json())))
    assert again == times


def test_windows_bound_what_rows_see() -> None:
    times = StepTimes((0, 8), (0.25, 0.75), *[Curve((0,), (0,))] * 6, 0.0)
    assert times.pairs(1, 100) == 0.25 * 100 + 0.75 * 8
    assert times.pairs(2, 100) == 0.25 * 199 + 0.75 * 16


@pytest.mark.parametrize("windows", [(0,), (0, 64)])
def test_fitting_recovers_known_costs(windows: tuple[int, ...]) -> None:
    spec = toy_spec(windows, max_context=4096, max_rows=256, max_sequences=32)
    true = step_times(step=5e-3, row=2e-4, logits=3e-5, pair=1e-7, host=4e-4)
    true = StepTimes(
        windows,
        tuple(1 / len(windows) for _ in windows),
        *(getattr(true, name) for name in ("body", "extra", "chunk", "token", "service", "host")),
        error=0.0,
    )
    found = fit(
        spec,
        lambda shapes: [true.engine_s(shape, len(shape)) for shape in shapes],
    )
    assert found.error < 1e-9
    for logit_rows in (1, 4, 13):
        expected = true.engine_s(MIXED, logit_rows)
        assert found.engine_s(MIXED, logit_rows) == pytest.approx(expected, rel=1e-6)


def test_the_error_is_that_of_mixed_steps() -> None:
    spec = toy_spec(max_context=512, max_rows=64, max_sequences=16)

    def slow_when_mixed(shapes: list[tuple[Rows, ...]]) -> list[float]:
        return [1.25 if len(set(shape)) > 1 else 1.0 for shape in shapes]

    assert fit(spec, slow_when_mixed).error == pytest.approx(0.2)


@pytest.mark.parametrize(
    "spec",
    [
        toy_spec((0, 6), max_context=64),
        toy_spec(max_context=16, max_rows=4, max_sequences=8),
        toy_spec(max_context=8, max_rows=1, max_sequences=1),
    ],
)
def test_every_measured_step_keeps_to_the_engine_limits(spec) -> None:
    """The toy engine checks every batch; time is one tick a look at the clock."""
    ticks = itertools.count()
    executable = ToyExecutable(spec)
    times = measure_step_times(executable, rounds=1, clock=lambda: next(ticks) * 0.01)
    assert times.body.knots[-1] == min(spec.max_rows, spec.max_context)
    assert times.token.knots[-1] == min(spec.max_sequences, spec.max_rows)
    assert times.windows == tuple(group.window for group in spec.groups)


def test_long_contexts_of_many_sequences_stay_within_the_memory() -> None:
    heavy = toy_spec(max_context=4096, max_rows=64, max_sequences=64)
    layer = LayerKV(0, 8, 1024, 1024, "float32")  # 64 KiB a token
    groups = (KVGroup(0, tuple(range(16))),)
    heavy = structs.replace(heavy, layers=(layer,) * 16, groups=groups)
    seen: list[tuple[Rows, ...]] = []

    def remember(shapes: list[tuple[Rows, ...]]) -> list[float]:
        seen.extend(shapes)
        return [1.0] * len(shapes)

    fit(heavy, remember)
    tokens = max(sum(length for _, length in shape) for shape in seen if len(set(shape)) == 1)
    assert tokens * heavy.kv_bytes_per_token <= max(512 << 20, 64 * 32 * heavy.kv_bytes_per_token)
