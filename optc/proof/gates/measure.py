"""Measure an engine against its float32 reference and judge it by a recipe's bounds."""

from __future__ import annotations

import dataclasses
import math
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx_ir as ir

from optc import registry
from optc.artifact.tasks.task import SPEED
from optc.artifact.tasks.text_generation import (
    ANSWERS,
    CONTINUATIONS,
    COPIES,
    TEXT_GENERATION,
    WINDOWS,
)
from optc.proof.gates.compare import Compared, compare_windows
from optc.proof.gates.continuation import Continuations, compare_continuations
from optc.proof.gates.copy_probe import PROBES, UNJUDGED_PROBES, CopyProbe, copy_probe
from optc.proof.gates.divergence import Float64, negative_log_likelihood
from optc.proof.gates.early_end import EarlyEnd
from optc.proof.gates.finite import TOO_LARGE, VAST, only_finite, perplexity_figures
from optc.proof.gates.speed import SpeedFigures, measure_speed
from optc.proof.reference.blockwise import BlockwiseReference
from optc.proof.reference.teacher_forcing import SingleSequence, window_logits
from optc.proof.reference.text import EvalWindows
from optc.runtime.executable.executable import Executable
from optc.system.hardware.target import usable_threads
from optc.system.progress import Progress, no_progress

#: Those of the divergence over all windows, of greedy decoding, and of copies of a text.
DIVERGENCE_GATES = TEXT_GENERATION.of(WINDOWS)
QUALITY_GATES = TEXT_GENERATION.of(WINDOWS, CONTINUATIONS, COPIES)
#: Of conversations (`optc.proof.gates.answers`).
ANSWER_GATES = TEXT_GENERATION.of(ANSWERS)
SPEED_GATES = TEXT_GENERATION.of(SPEED)


@dataclass(frozen=True)
class GateResult:
    """One gate.

    Attributes:
        name: Of a measure of the task.
        value: What was measured; None if it was not.
        bound: The recipe's bound; None if it is only reported.
        passed: Whether the bound holds; None without a bound or a value, or where the machine is
            too noisy to tell.
        measured_on: ``engine``; ``lowered-onnx`` where the engine cannot run here but the model
            that it was lowered to; or ``none``.
        reason: Why it failed or was not measured; empty otherwise.
        engine: Name of the engine in the artifact.
        windows: After how many of the text's windows it ended early, as the whole engine's gates
            do once one of them cannot hold any more; None where all were measured.
    """

    name: str
    value: float | None
    bound: float | None
    passed: bool | None
    measured_on: str
    reason: str = ""
    engine: str = "target"
    windows: int | None = None


@dataclass(frozen=True)
class GateReport:
    """All gates of a compile and the figures behind them.

    Attributes:
        gates: In the order of `QUALITY_GATES` and `SPEED_GATES`.
        figures: JSON values for report.json: both perplexities, what was found in the windows
            (`optc.proof.gates.compare.Compared.figures`), greedy continuations
            (`optc.proof.gates.continuation`),
            copies (`optc.proof.gates.copy_probe`), tokens/s of engine and baseline, how text and
            windows were chosen, how the baseline ran, seconds.
    """

    gates: tuple[GateResult, ...]
    figures: dict[str, Any] = field(default_factory=dict)


def is_open(gate: GateResult) -> bool:
    """True if a gate with a bound has no verdict, though another gate did not end it early."""
    return gate.bound is not None and gate.passed is None and gate.windows is None


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
        bounds: Bound by gate name; None is measured and reported, not judged. Where one cannot
            hold any more, the rest is not measured (`optc.proof.gates.early_end`).
        max_ram_bytes: Memory limit of the compile; 0 is none. Decides whether the speed
            baseline runs whole or block by block.
        speed: Measure tokens/s too.
        compared: Divergence that was measured on something else than the windows, such as answers;
            None measures it on them.
        progress: Told where it stands.
    """
    began = time.monotonic()
    if compared is None:
        compared = compare_windows(reference, executable, windows, bounds, progress)
    figures: dict[str, Any] = {
        "text": windows.source,
        "convention": windows.convention,
        **dataclasses.asdict(compared.divergence),
        **compared.figures(),
    }
    if compared.ends:
        figures["seconds_quality"] = time.monotonic() - began
        return GateReport(_judge_ended(compared, bounds), only_finite(figures))
    continued = compare_continuations(reference, executable, windows.ids)
    judged = bounds.get("copy_nll_added") is not None
    most = PROBES if judged else UNJUDGED_PROBES
    copies = copy_probe(reference, executable, windows.ids, most)
    reference.let_go()
    measured = time.monotonic()
    figures |= {
        "continuations": dataclasses.asdict(continued),
        "copies": None if copies is None else dataclasses.asdict(copies),
        "seconds_quality": measured - began,
    }
    speeds: SpeedFigures | None = None
    if speed:
        speeds = measure_speed(
            reference.model,
            executable,
            windows.ids,
            threads=reference.threads,
            max_ram_bytes=max_ram_bytes,
            judged=any(bounds.get(name) is not None for name in SPEED_GATES),
            progress=progress,
        )
        figures |= dataclasses.asdict(speeds)
        figures["seconds_speed"] = time.monotonic() - measured
    gates = _judge(compared, continued, copies, speeds, bounds)
    return GateReport(gates, only_finite(figures))


def compare(
    reference_model: ir.Model,
    executable: Executable,
    windows: EvalWindows,
    *,
    threads: int,
    progress: Progress = no_progress,
) -> Compared:
    """KL, agreement and perplexities of the engine against the float32 reference.

    Raises:
        optc.errors.UnsupportedError: The reference cannot be cut into blocks.
    """
    reference = BlockwiseReference(reference_model, threads)
    try:
        return compare_windows(reference, executable, windows, progress=progress)
    finally:
        reference.close()


def evaluate(
    executable: Executable,
    windows: EvalWindows,
    *,
    reference_model: ir.Model | None = None,
    threads: int | None = None,
    progress: Progress = no_progress,
) -> dict[str, Any]:
    """The figures of ``optc eval``: tokens and perplexity; with a reference (dense form) also
    kl_mean, kl_p99, kl_max, top1_agreement, top5_agreement and the reference's perplexity. Figures
    that are no finite numbers are None, and ``not_measured`` says why.

    Raises: as `measure_gates`.
    """
    stated = {"text": windows.source, "convention": windows.convention}
    if reference_model is not None:
        count = usable_threads() if threads is None else threads
        found = compare(reference_model, executable, windows, threads=count, progress=progress)
        figures: dict[str, Any] = only_finite(dataclasses.asdict(found.divergence))
        reason = found.worst.broken or (VAST if None in figures.values() else "")
        missing = {"not_measured": reason} if reason else {}
        return {**figures, **missing, **stated}
    sequence = SingleSequence(executable, windows.ids.shape[1] - 1)
    losses: list[Float64] = []
    for index, ids in enumerate(windows.ids):
        rows = [
            negative_log_likelihood(logits, ids[1:][start : start + len(logits)])
            for start, logits in window_logits(sequence, ids[:-1])
        ]
        losses.append(np.concatenate(rows))
        progress("perplexity", index + 1, len(windows.ids))
    return {"tokens": windows.tokens, **perplexity_figures(losses), **stated}


def _judge_ended(compared: Compared, bounds: Mapping[str, float | None]) -> tuple[GateResult, ...]:
    """Verdicts of gates that ended early: those that cannot hold have failed; others with a bound
    have none."""
    ends = {end.gate: end for end in compared.ends}
    first = compared.ends[0]
    results = []
    for name in (*QUALITY_GATES, *SPEED_GATES):
        known = name in DIVERGENCE_GATES
        value = float(getattr(compared.divergence, name)) if known else None
        judged = judge(name, value, bounds.get(name), broken=compared.worst.broken)
        results.append(_ended(judged, ends.get(name), first))
    return tuple(results)


def _ended(judged: GateResult, end: EarlyEnd | None, first: EarlyEnd) -> GateResult:
    name, value, bound = judged.name, judged.value, judged.bound
    if end is not None:
        reason = f"{value:.6g}, {end}" if judged.passed else f"{judged.reason}, {end}"
        return dataclasses.replace(judged, passed=False, reason=reason, windows=end.windows)
    if judged.passed is False and value is None:  # other windows cannot mend it
        return dataclasses.replace(judged, windows=first.windows)
    reason = f"{first.gate} ended the gates after {first.windows} of {first.of} windows"
    if value is None or bound is None:
        result = judge(name, value, bound, absent=reason)
        return dataclasses.replace(result, windows=first.windows)
    return GateResult(name, value, bound, None, "engine", reason, windows=first.windows)


def _judge(
    compared: Compared,
    continued: Continuations,
    copies: CopyProbe | None,
    speeds: SpeedFigures | None,
    bounds: Mapping[str, float | None],
) -> tuple[GateResult, ...]:
    values: dict[str, float | None] = {
        name: float(getattr(compared.divergence, name)) for name in DIVERGENCE_GATES
    }
    values["common_continuation"] = continued.mean
    values["copy_nll_added"] = None if copies is None else copies.added
    results = [
        judge(name, value, bounds.get(name), "the text is too short", compared.worst.broken)
        for name, value in values.items()
    ]
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


def judge(
    name: str, value: float | None, bound: float | None, absent: str = "", broken: str = ""
) -> GateResult:
    """The verdict on one gate; ``absent`` says why there is no value, ``broken`` why it is no
    finite number: over such a one no bound holds."""
    if value is None:
        return GateResult(name, None, bound, None, "none", absent)
    if not math.isfinite(value):
        reason = broken or TOO_LARGE.format(value)
        return GateResult(name, None, bound, None if bound is None else False, "engine", reason)
    if bound is None:
        return GateResult(name, value, None, None, "engine")
    upper = registry.measures()[name].upper
    passed = value <= bound if upper else value >= bound
    relation = "above" if upper else "below"
    reason = "" if passed else f"{value:.6g} is {relation} the bound {bound:g}"
    return GateResult(name, value, bound, passed, "engine", reason)
