"""The baseline computes what the dense form computes; timings only have to exist."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import onnxruntime as ort
import pytest

from optc.proof.gates import speed, weights_room
from optc.proof.gates.speed import PartRun, SpeedFigures, measure_speed
from optc.proof.reference import baseline as baseline_module
from optc.proof.reference.baseline import Baseline, BaselinePart
from optc.runtime.executable.executable import StepBatch
from tests.proof.reference.test_blockwise import whole_logits
from tests.support.dense_models import V, dense_model
from tests.support.recomputing_engine import RecomputingEngine


@pytest.mark.parametrize("options", [{}, {"window": 4, "softcap": 2.0}, {"bias": True}], ids=str)
def test_cached_baseline_equals_the_dense_form(options) -> None:
    model = dense_model(2, **options)
    tokens = np.random.default_rng(3).integers(0, V, 14, np.int32)
    expected = whole_logits(model, tokens[None])[0]
    (logits,) = cached_logits(Baseline(model, 1, whole=True), tokens)
    np.testing.assert_allclose(logits, expected[[8, 9, 13]], atol=2e-5)


def cached_logits(baseline: Baseline, tokens: np.ndarray) -> list[np.ndarray]:
    """Logits after 9, 10 and 14 tokens, fed as 9 + 1 + 4."""
    found = []
    for part in baseline.open_parts(tokens):
        run = PartRun(part, 4)
        logits = []
        past = None
        for start, stop in ((0, 9), (9, 10), (10, 14)):
            feeds = {n: np.ascontiguousarray(a[:, start:stop]) for n, a in part.feeds.items()}
            value, past = run.prefill(feeds) if past is None else run.run(feeds, past)
            logits.append(value.numpy()[0, -1].copy())
        found.append(np.stack(logits))
    return found


def test_pieces_compute_the_same_as_the_whole(monkeypatch) -> None:
    monkeypatch.setattr(baseline_module, "HEAD_TILE", 40)
    model = dense_model(3)
    baseline = Baseline(model, 1, whole=False)
    tokens = np.arange(6, dtype=np.int32)
    shapes = []
    for part in baseline.open_parts(tokens):
        run = PartRun(part, 3)
        result, past = run.prefill(part.feeds)
        shapes.append((result.shape(), len(past)))
        assert isinstance(part.session, ort.InferenceSession)
    assert baseline.pieces == len(shapes) == 6
    assert shapes[:3] == [([1, 6, 48], 2)] * 3
    assert shapes[3:] == [([1, 1, n], 0) for n in (40, 40, 17)]


@pytest.mark.parametrize("whole", [True, False])
def test_measures_both_in_turns(whole: bool, monkeypatch) -> None:
    monkeypatch.setattr(weights_room, "RESERVED_BYTES", 0)
    model = dense_model(2)
    engine = RecomputingEngine(model)
    found = measure_speed(
        model,
        engine,
        np.arange(30, dtype=np.int32),
        threads=1,
        max_ram_bytes=10**9 if whole else 1000,
    )
    assert (found.prefill_tokens, found.decode_context, found.decode_tokens) == (64, 32, 16)
    assert found.prefill_speedup == pytest.approx(
        found.prefill_tokens_per_s / found.baseline_prefill_tokens_per_s
    )
    assert found.decode_speedup == pytest.approx(
        found.decode_tokens_per_s / found.baseline_decode_tokens_per_s
    )
    assert found.baseline.endswith("whole" if whole else "in 3 pieces, their times added up")
    rounds = 1 + speed.ROUNDS
    assert engine.steps == ([16] * 4 + [16] * 2 + [1] * 16) * rounds


class Clock:
    """Stands where it was put."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 1000.0
        monkeypatch.setattr(speed, "time", SimpleNamespace(perf_counter=lambda: self.now))


class TimedEngine(RecomputingEngine):
    """A prefill in one step takes a second, a decode step as many as are given."""

    def __init__(self, clock: Clock, decode_s: float, **limits: int) -> None:
        sizes = {"max_rows": 512, **limits}
        super().__init__(dense_model(1), disturb=lambda logits: logits, **sizes)
        self._clock, self._decode_s = clock, decode_s
        self.wanted: list[int] = []

    def step(self, batch: StepBatch) -> np.ndarray:
        self._clock.now += 1.0 if len(batch.tokens) > 1 else self._decode_s
        self.steps.append(len(batch.tokens))
        self.wanted.append(len(batch.logit_rows))
        return np.zeros((len(batch.logit_rows), V), np.float32)


class TimedPart:
    """Stands for `PartRun`: five rounds of 3 s in the median, after a slow one."""

    def __init__(self, part: BaselinePart, context: int) -> None:
        self._rounds = iter([30.0, 4.0, 9.0, 3.0, 2.0, 1.0])

    def round(self, steps: int) -> tuple[float, float]:
        seconds = next(self._rounds)
        return seconds, 2 * seconds


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    monkeypatch.setattr(speed, "PartRun", TimedPart)
    return Clock(monkeypatch)


def timed(engine: TimedEngine, max_ram_bytes: int = 0, *, judged: bool = True) -> SpeedFigures:
    tokens, room = np.arange(30, dtype=np.int32), max_ram_bytes
    return measure_speed(
        dense_model(1), engine, tokens, threads=1, max_ram_bytes=room, judged=judged
    )


def test_512_tokens_are_prefilled_and_16_decoded_after_128_in_five_rounds(clock: Clock) -> None:
    """And one round before them, whose times do not count."""
    engine = TimedEngine(clock, 0.1, max_context=1024)
    found = timed(engine)
    assert (found.prefill_tokens, found.decode_context, found.decode_tokens) == (512, 128, 16)
    assert engine.steps == [512, 128, *[1] * 16] * 6
    assert set(engine.wanted) == {1}


def test_medians_of_rounds_are_compared(clock: Clock) -> None:
    found = timed(TimedEngine(clock, 0.03125))
    assert found.prefill_tokens_per_s == 64
    assert found.decode_tokens_per_s == 32
    assert found.baseline_prefill_tokens_per_s == pytest.approx(64 / 3)
    assert found.baseline_decode_tokens_per_s == pytest.approx(16 / 6)
    assert (found.prefill_speedup, found.decode_speedup) == pytest.approx((3, 12))
    assert found.prefill_speedup_range == pytest.approx((1, 9))
    assert found.decode_speedup_range == pytest.approx((4, 36))


def test_medians_of_pieces_are_added_up(clock: Clock) -> None:
    stages: list[tuple[str, int, int]] = []
    found = measure_speed(
        dense_model(1),
        TimedEngine(clock, 0.1),
        np.arange(30, dtype=np.int32),
        threads=1,
        max_ram_bytes=1,
        progress=lambda *stage: stages.append(stage),
    )
    assert stages == [("speed", 1, 2), ("speed", 2, 2)]
    assert found.baseline_prefill_tokens_per_s == pytest.approx(64 / 6)
    assert found.prefill_speedup_range == pytest.approx((2, 18)), "rounds of pieces are added up"


@pytest.mark.parametrize(("decode_s", "rounds"), [(0.124, 5), (0.125, 3)])
def test_rounds_from_three_seconds_on_are_fewer(clock: Clock, decode_s: float, rounds: int) -> None:
    engine = TimedEngine(clock, decode_s)
    timed(engine)
    assert engine.steps == [64, 32, *[1] * 16] * (1 + rounds)


def test_rounds_that_no_bound_judges_are_fewer(clock: Clock) -> None:
    engine = TimedEngine(clock, 0.1)
    timed(engine, judged=False)
    assert engine.steps == [64, 32, *[1] * 16] * (1 + 3)


@pytest.mark.parametrize(
    ("max_ram_bytes", "parameters"), [(0, 450_000_000), (2_800_000_000, 400_000_000)]
)
def test_the_baseline_runs_whole_where_its_weights_fit(
    clock: Clock, monkeypatch: pytest.MonkeyPatch, max_ram_bytes: int, parameters: int
) -> None:
    """Of the limit, 3 GB where there is none, 1.2 GB are for everything else."""
    for more, how in ((0, "whole"), (1, "in 2 pieces, their times added up")):
        monkeypatch.setattr(speed, "parameter_count", lambda model, n=parameters + more: n)
        assert timed(TimedEngine(clock, 0.1), max_ram_bytes).baseline.endswith(how)


def test_engines_of_short_sequences_decode_what_there_is_room_for(clock: Clock) -> None:
    found = timed(TimedEngine(clock, 0.1, max_context=20))
    assert (found.prefill_tokens, found.decode_context, found.decode_tokens) == (20, 10, 10)
    two = timed(TimedEngine(clock, 0.1, max_context=2))
    assert (two.prefill_tokens, two.decode_context, two.decode_tokens) == (2, 1, 1)


def test_a_round_of_the_baseline_is_a_prefill_and_steps_after_a_shorter_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A row takes a second; the shorter prefill does not count."""
    clock = Clock(monkeypatch)
    ran: list[tuple[int, int]] = []

    class Noted(PartRun):
        def run(self, feeds, past):
            rows, seen = next(iter(feeds.values())).shape[1], next(iter(past.values())).shape()[2]
            ran.append((rows, seen))
            clock.now += rows
            return super().run(feeds, past)

    (part,) = Baseline(dense_model(1), 1, whole=True).open_parts(np.arange(14, dtype=np.int32))
    assert Noted(part, 4).round(3) == (14, 3)
    assert ran == [(14, 0), (4, 0), (1, 4), (1, 5), (1, 6)]
