"""Tokens/s of an engine against the unoptimized float32 model in ONNX Runtime.

One sequence: a prefill, and single tokens decoded after a shorter one. Rounds of baseline and
engine alternate, so that both see the same machine, and medians are compared. Where the baseline
has to be timed in pieces, the medians of the pieces are added up.

How far the rounds lie apart says what the machine lets one judge: the smallest and the largest
ratio of five rounds hold the median ratio with a probability of 94 %, those of three with one of
75 % (1 - 2/2^n: the order statistics' confidence interval, whatever the distribution).
"""

from __future__ import annotations

import time
from dataclasses import dataclass

import numpy as np
import onnx_ir as ir
import onnxruntime as ort

from optc.proof.gates.weights_room import weights_room
from optc.proof.reference.baseline import Baseline, BaselinePart
from optc.proof.reference.submodel import Array
from optc.proof.reference.teacher_forcing import SingleSequence
from optc.runtime.executable.executable import Executable, Int32
from optc.system.progress import Progress, no_progress

#: Rounds whose median counts where a bound judges it, and how long a round of the engine may take
#: for that many; and rounds of others.
ROUNDS = 5
FEW_ROUNDS = 3
LONG_ROUND_S = 3.0
#: Prompt that is prefilled, context before the decoded tokens, and how many those are.
PREFILL_TOKENS = 512
DECODE_CONTEXT = 128
DECODE_TOKENS = 16


@dataclass(frozen=True)
class SpeedFigures:
    """Tokens/s, batch 1, of the engine and of the baseline.

    Attributes:
        prefill_tokens: Length of the timed prefill.
        decode_context: Tokens before the first decoded one.
        decode_tokens: Decoded tokens per round.
        prefill_tokens_per_s: Engine.
        decode_tokens_per_s: Engine.
        baseline_prefill_tokens_per_s: The unoptimized model.
        baseline_decode_tokens_per_s: The unoptimized model.
        baseline: How it ran, one sentence.
        prefill_speedup: Of the medians.
        decode_speedup: Of the medians.
        prefill_speedup_range: Of the rounds, each engine's with the baseline's of the same number:
            the smallest and the largest.
        decode_speedup_range: As that.
    """

    prefill_tokens: int
    decode_context: int
    decode_tokens: int
    prefill_tokens_per_s: float
    decode_tokens_per_s: float
    baseline_prefill_tokens_per_s: float
    baseline_decode_tokens_per_s: float
    baseline: str
    prefill_speedup: float
    decode_speedup: float
    prefill_speedup_range: tuple[float, float]
    decode_speedup_range: tuple[float, float]


@dataclass(frozen=True)
class _Plan:
    """Token counts of a round: prefill [P], decode ``steps`` after ``context``."""

    tokens: Int32
    context: int
    steps: int


#: Seconds of a prefill and of all decode steps of a round.
_Times = tuple[float, float]
#: Caches by input name; ONNX Runtime owns their memory, or `PartRun` the array.
_Past = dict[str, ort.OrtValue]


def parameter_count(model: ir.Model) -> int:
    """Elements of all initializers; a tied embedding and head count twice."""
    tensors = (value.const_value for value in model.graph.initializers.values())
    return sum(int(tensor.size) for tensor in tensors if tensor is not None)


def measure_speed(
    model: ir.Model,
    executable: Executable,
    tokens: Int32,
    *,
    threads: int,
    max_ram_bytes: int,
    judged: bool = True,
    progress: Progress = no_progress,
) -> SpeedFigures:
    """Time engine and baseline, interleaved.

    Args:
        model: Dense form, after `canonicalize`.
        executable: The engine, for at least 2 tokens; its KV pools are replaced.
        tokens: Token ids of any shape to use as the prompt.
        threads: Threads of ONNX Runtime.
        max_ram_bytes: Memory limit; 0 is none. The baseline runs whole if its float32 weights fit
            in what is left of it (`weights_room`).
        judged: A bound judges the figures.
        progress: Told where it stands.
    """
    plan = _plan(tokens, executable.spec.max_context)
    sequence = SingleSequence(executable, len(plan.tokens))  # no shorter than what is decoded
    warm = _engine_round(sequence, plan)
    rounds = ROUNDS if judged and sum(warm) < LONG_ROUND_S else FEW_ROUNDS
    whole = 4 * parameter_count(model) <= weights_room(max_ram_bytes)
    baseline = Baseline(model, threads, whole=whole)
    engine: list[_Times] = []
    totals, by_round = np.zeros(2), np.zeros((rounds, 2))
    for index, part in enumerate(baseline.open_parts(plan.tokens)):
        due = (index + 1) * rounds // baseline.pieces - index * rounds // baseline.pieces
        run = PartRun(part, plan.context)
        run.round(plan.steps)  # warm-up
        times: list[_Times] = []
        for turn in range(rounds):
            times.append(run.round(plan.steps))
            if turn < due:
                engine.append(_engine_round(sequence, plan))
        totals += np.median(times, axis=0)
        by_round += np.array(times)
        progress("speed", index + 1, baseline.pieces)
    spread = by_round / np.array(engine)
    return _figures(plan, np.median(engine, axis=0), totals, spread, baseline.pieces)


def _plan(tokens: Int32, max_context: int) -> _Plan:
    prompt = min(PREFILL_TOKENS, max_context)
    context = min(DECODE_CONTEXT, max_context // 2)
    steps = min(DECODE_TOKENS, max_context - context)
    return _Plan(np.resize(tokens, prompt).astype(np.int32), context, steps)


def _engine_round(sequence: SingleSequence, plan: _Plan) -> _Times:
    sequence.restart()
    began = time.perf_counter()
    sequence.prefill(plan.tokens)
    prefill = time.perf_counter() - began
    sequence.restart()
    sequence.prefill(plan.tokens[: plan.context])
    token, row = plan.tokens[:1], np.zeros(1, np.int32)
    began = time.perf_counter()
    for _ in range(plan.steps):
        sequence.feed(token, row)
    return prefill, time.perf_counter() - began


class PartRun:
    """Runs a part of the baseline.

    Args:
        part: The part.
        context: Tokens before the first decoded one.
    """

    def __init__(self, part: BaselinePart, context: int) -> None:
        self._part = part
        self._outputs = [part.result, *(name for c in part.caches for name in c.present)]
        # ONNX Runtime keeps no reference to what is bound, so these arrays have to stay.
        self._prompt = _contiguous(part.feeds)
        self._short = _contiguous({n: a[:, :context] for n, a in part.feeds.items()})
        self._single = _contiguous({n: a[:, -1:] for n, a in part.feeds.items()})
        self._fixed = {n: _value(a) for n, a in part.fixed.items()}
        self._empty = {n: a for cache in part.caches for n, a in cache.empty().items()}

    def round(self, steps: int) -> _Times:
        """Seconds of a prefill, and of ``steps`` single rows after the shorter context."""
        began = time.perf_counter()
        self.prefill(self._prompt)
        prefill = time.perf_counter() - began
        past = self.prefill(self._short)[1]
        began = time.perf_counter()
        for _ in range(steps):
            past = self.run(self._single, past)[1]
        return prefill, time.perf_counter() - began

    def prefill(self, feeds: dict[str, Array]) -> tuple[ort.OrtValue, _Past]:
        """`run` for a new sequence."""
        return self.run(feeds, {name: _value(array) for name, array in self._empty.items()})

    def run(self, feeds: dict[str, Array], past: _Past) -> tuple[ort.OrtValue, _Past]:
        """Run rows, each feed [1, rows, …]; the result, and the caches as the next run's past."""
        rows = next(iter(feeds.values())).shape[1]
        masks = {
            name: mask
            for cache in self._part.caches
            for name, mask in cache.masks(rows, past[cache.past[0]].shape()[2]).items()
        }
        values = {name: _value(array) for name, array in {**feeds, **masks}.items()}
        result, *present = self._part.session.run_with_ort_values(
            self._outputs, {**values, **self._fixed, **past}
        )
        names = [name for cache in self._part.caches for name in cache.past]
        return result, dict(zip(names, present, strict=True))


def _contiguous(arrays: dict[str, Array]) -> dict[str, Array]:
    return {name: np.ascontiguousarray(array) for name, array in arrays.items()}


def _value(array: Array) -> ort.OrtValue:
    return ort.OrtValue.ortvalue_from_numpy(array)


def _figures(
    plan: _Plan, engine: Array, baseline: Array, spread: Array, pieces: int
) -> SpeedFigures:
    counts = np.array([len(plan.tokens), plan.steps])
    ours, theirs = counts / engine, counts / baseline
    how = "whole" if pieces == 1 else f"in {pieces} pieces, their times added up"
    return SpeedFigures(
        prefill_tokens=len(plan.tokens),
        decode_context=plan.context,
        decode_tokens=plan.steps,
        prefill_tokens_per_s=float(ours[0]),
        decode_tokens_per_s=float(ours[1]),
        baseline_prefill_tokens_per_s=float(theirs[0]),
        baseline_decode_tokens_per_s=float(theirs[1]),
        baseline=f"unoptimized float32 model in ONNX Runtime with a KV cache, {how}",
        prefill_speedup=float(ours[0] / theirs[0]),
        decode_speedup=float(ours[1] / theirs[1]),
        prefill_speedup_range=_range(spread[:, 0]),
        decode_speedup_range=_range(spread[:, 1]),
    )


def _range(ratios: Array) -> tuple[float, float]:
    return float(ratios.min()), float(ratios.max())
