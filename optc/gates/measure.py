"""Measure an engine against its float32 reference and judge it by a recipe's bounds."""

from __future__ import annotations

import dataclasses
import math
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import onnx_ir as ir

from optc.executable.executable import Executable, Float32
from optc.gates.continuation import Continuations, compare_continuations
from optc.gates.copy_probe import CopyProbe, copy_probe
from optc.gates.divergence import (
    Divergence,
    RowDivergence,
    RowScores,
    negative_log_likelihood,
    summarize,
)
from optc.gates.kl_distribution import kl_distribution
from optc.gates.speed import SpeedFigures, measure_speed
from optc.gates.worst_contexts import WorstContexts, decoder
from optc.progress import Progress, no_progress
from optc.reference.blockwise import BlockwiseReference
from optc.reference.teacher_forcing import SingleSequence, window_logits
from optc.reference.text import EvalWindows
from optc.target import usable_threads

#: Gates whose value must not exceed the bound; of the others it must not fall below.
UPPER_BOUNDED = frozenset(
    {
        *("kl_mean", "kl_p99", "kl_max", "perplexity", "perplexity_ratio", "copy_nll_added"),
        *("answer_kl_mean", "answer_kl_p99", "decision_flips"),
    }
)
#: Those of the divergence over all windows, of greedy decoding, and of copies of a text.
DIVERGENCE_GATES = (
    *("kl_mean", "kl_p99", "kl_max", "top1_agreement", "top5_agreement"),
    *("perplexity", "perplexity_ratio"),
)
QUALITY_GATES = (*DIVERGENCE_GATES, "common_continuation", "copy_nll_added")
#: Of conversations (`optc.gates.answers`).
ANSWER_GATES = (
    *("answer_kl_mean", "answer_kl_p99", "answer_top1_agreement"),
    *("decision_flips", "margin_factor"),
)
SPEED_GATES = ("prefill_speedup", "decode_speedup")


@dataclass(frozen=True)
class GateResult:
    """One gate.

    Attributes:
        name: One of `QUALITY_GATES`, `ANSWER_GATES` or `SPEED_GATES`.
        value: What was measured; None if it was not.
        bound: The recipe's bound; None if it is only reported.
        passed: Whether the bound holds; None without a bound or a value, or where the machine is
            too noisy to tell.
        measured_on: ``engine``; ``lowered-onnx`` where the engine cannot run here but the model
            that it was lowered to; or ``none``.
        reason: Why it failed or was not measured; empty otherwise.
        engine: Name of the engine in the artifact.
    """

    name: str
    value: float | None
    bound: float | None
    passed: bool | None
    measured_on: str
    reason: str = ""
    engine: str = "target"


@dataclass(frozen=True)
class GateReport:
    """All gates of a compile and the figures behind them.

    Attributes:
        gates: In the order of `QUALITY_GATES` and `SPEED_GATES`.
        figures: JSON values for report.json: both perplexities, the distribution of KL
            (`optc.gates.kl_distribution`), the worst contexts
            (`optc.gates.worst_contexts`), greedy continuations (`optc.gates.continuation`),
            copies (`optc.gates.copy_probe`), tokens/s of engine and baseline, how text and windows
            were chosen, how the baseline ran, seconds.
    """

    gates: tuple[GateResult, ...]
    figures: dict[str, Any] = field(default_factory=dict)

    @property
    def failed(self) -> tuple[GateResult, ...]:
        """Gates whose bound does not hold."""
        return tuple(gate for gate in self.gates if gate.passed is False)

    @property
    def unmeasured(self) -> tuple[GateResult, ...]:
        """Gates that have a bound but no verdict."""
        return tuple(g for g in self.gates if g.bound is not None and g.passed is None)


class Compared(NamedTuple):
    """An engine beside its reference.

    Attributes:
        divergence: Figures over all scored tokens.
        worst: Where they differ most.
        distribution: How the KL is distributed (`kl_distribution`).
    """

    divergence: Divergence
    worst: WorstContexts
    distribution: dict[str, Any]


def measure_gates(
    reference: BlockwiseReference,
    executable: Executable,
    windows: EvalWindows,
    bounds: Mapping[str, float | None],
    *,
    max_ram_bytes: int = 0,
    speed: bool = True,
    compared: Compared | None = None,
    progress: Progress = no_progress,
) -> GateReport:
    """Run the engine and the reference over the same windows and judge the recipe's bounds.

    Args:
        reference: The model in dense form, after `canonicalize` and before other passes. It runs
            once for several engines in turn. The baseline of the speed has as many threads.
        executable: The loaded engine; its KV pools are replaced.
        windows: What to score.
        bounds: Bound by gate name; None is measured and reported, not judged.
        max_ram_bytes: Memory limit of the compile; 0 is none. Decides whether the speed
            baseline runs whole or block by block.
        speed: Measure tokens/s too.
        compared: Divergence that was measured on something else than the windows, such as answers;
            None measures it on them.
        progress: Told where it stands.
    """
    began = time.monotonic()
    divergence, worst, distribution = compared or compare_with(
        reference, executable, windows, progress
    )
    continued = compare_continuations(reference, executable, windows.ids)
    copies = copy_probe(reference, executable, windows.ids)
    judged = time.monotonic()
    figures: dict[str, Any] = {
        "text": windows.source,
        "convention": windows.convention,
        **dataclasses.asdict(divergence),
        "kl_distribution": distribution,
        "worst_contexts": worst.to_json(),
        "continuations": dataclasses.asdict(continued),
        "copies": None if copies is None else dataclasses.asdict(copies),
        "seconds_quality": judged - began,
    }
    speeds: SpeedFigures | None = None
    if speed:
        speeds = measure_speed(
            reference.model,
            executable,
            windows.ids,
            threads=reference.threads,
            max_ram_bytes=max_ram_bytes,
            progress=progress,
        )
        figures |= dataclasses.asdict(speeds)
        figures["seconds_speed"] = time.monotonic() - judged
    return GateReport(_judge(divergence, continued, copies, speeds, bounds), figures)


def compare(
    reference_model: ir.Model,
    executable: Executable,
    windows: EvalWindows,
    *,
    threads: int,
    progress: Progress = no_progress,
) -> Divergence:
    """KL, agreement and perplexities of the engine against the float32 reference.

    Raises:
        optc.errors.UnsupportedError: The reference cannot be cut into blocks.
    """
    reference = BlockwiseReference(reference_model, threads)
    try:
        return compare_with(reference, executable, windows, progress)[0]
    finally:
        reference.close()


def compare_with(
    reference: BlockwiseReference,
    executable: Executable,
    windows: EvalWindows,
    progress: Progress = no_progress,
) -> Compared:
    """As `compare`, with an open reference, which runs once for the same windows."""
    hidden = reference.hidden_states(
        windows.ids[:, :-1], lambda done, total: progress("float32 reference", done, total)
    )
    return _compare_logits(reference, hidden, executable, windows, progress)


def _compare_logits(
    reference: BlockwiseReference,
    hidden: Float32,
    executable: Executable,
    windows: EvalWindows,
    progress: Progress,
) -> Compared:
    size = windows.ids.shape[1] - 1
    sequence = SingleSequence(executable, size)
    scores: list[RowScores] = []
    worst = WorstContexts(decoder(windows.tokenizer_file))
    for index, ids in enumerate(windows.ids):
        for start, logits in window_logits(sequence, ids[:-1]):
            stop = start + len(logits)
            states = hidden[index * size + start : index * size + stop]
            sums = RowDivergence(ids[1:][start:stop])
            for tile in reference.tiles():
                expected = reference.logits(states, tile)
                sums.add(expected, logits[:, tile.start : tile.stop], tile.start)
            scores.append(sums.result())
            worst.add(index, ids, start, scores[-1])
        progress("divergence", index + 1, len(windows.ids))
    return Compared(summarize(scores), worst, kl_distribution(scores))


def evaluate(
    executable: Executable,
    windows: EvalWindows,
    *,
    reference_model: ir.Model | None = None,
    threads: int | None = None,
    progress: Progress = no_progress,
) -> dict[str, Any]:
    """The figures of ``optc eval``: tokens and perplexity; with a reference (dense form) also
    kl_mean, kl_p99, kl_max, top1_agreement, top5_agreement and the reference's perplexity.

    Raises: as `measure_gates`.
    """
    stated = {"text": windows.source, "convention": windows.convention}
    if reference_model is not None:
        count = usable_threads() if threads is None else threads
        found = compare(reference_model, executable, windows, threads=count, progress=progress)
        return {**dataclasses.asdict(found), **stated}
    sequence = SingleSequence(executable, windows.ids.shape[1] - 1)
    total = 0.0
    for index, ids in enumerate(windows.ids):
        for start, logits in window_logits(sequence, ids[:-1]):
            targets = ids[1:][start : start + len(logits)]
            total += float(negative_log_likelihood(logits, targets).sum())
        progress("perplexity", index + 1, len(windows.ids))
    return {"tokens": windows.tokens, "perplexity": math.exp(total / windows.tokens), **stated}


def _judge(
    divergence: Divergence,
    continued: Continuations,
    copies: CopyProbe | None,
    speeds: SpeedFigures | None,
    bounds: Mapping[str, float | None],
) -> tuple[GateResult, ...]:
    values = {name: float(getattr(divergence, name)) for name in DIVERGENCE_GATES}
    values["common_continuation"] = continued.mean
    added = None if copies is None else copies.added
    results = [judge(name, value, bounds.get(name)) for name, value in values.items()]
    results.append(
        judge("copy_nll_added", added, bounds.get("copy_nll_added"), "the text is too short")
    )
    results += [_judge_speed(name, speeds, bounds.get(name)) for name in SPEED_GATES]
    return tuple(results)


def _judge_speed(name: str, speeds: SpeedFigures | None, bound: float | None) -> GateResult:
    if speeds is None:
        return judge(name, None, bound, absent="speed was not measured")
    result = judge(name, float(getattr(speeds, name)), bound)
    low, high = getattr(speeds, f"{name}_range")
    if bound is None or not low < bound <= high:
        return result
    reason = (
        f"not measurable here: the machine is too noisy, rounds from {low:.3g} to {high:.3g} "
        f"include the bound {bound:g}"
    )
    return dataclasses.replace(result, passed=None, reason=reason)


def judge(name: str, value: float | None, bound: float | None, absent: str = "") -> GateResult:
    """The verdict on one gate; ``absent`` says why there is no value."""
    if value is None:
        return GateResult(name, None, bound, None, "none", absent)
    if bound is None:
        return GateResult(name, value, None, None, "engine")
    upper = name in UPPER_BOUNDED
    passed = value <= bound if upper else value >= bound
    relation = "above" if upper else "below"
    reason = "" if passed else f"{value:.6g} is {relation} the bound {bound:g}"
    return GateResult(name, value, bound, passed, "engine", reason)
