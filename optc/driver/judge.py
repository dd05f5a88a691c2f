"""The gates of a compile: measured through the built engine, against the float32 reference."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from optc.artifact import EngineEntry, TokenizerEntry
from optc.driver.options import CompileOptions
from optc.errors import GateError
from optc.target import host_features, usable_threads

if TYPE_CHECKING:  # the gates bring ONNX Runtime, which a compile without them does not need
    from optc.driver.lowering import Lowered
    from optc.gates.measure import GateReport, GateResult


@dataclass(frozen=True)
class Judgement:
    """All gates of a compile.

    Attributes:
        gates: Every gate that has a value or a bound.
        measured: False where the gates were switched off.
        failed: The gates that forbid the artifact.
        facts: Tokens, windows, conventions and speeds, for the report.
        warnings: What the user should know.
    """

    gates: tuple[GateResult, ...]
    measured: bool
    failed: tuple[GateResult, ...] = ()
    facts: dict[str, Any] = field(default_factory=dict)
    warnings: tuple[str, ...] = ()


class GatesFailedError(GateError):
    """Gates that failed, with what was measured.

    Attributes:
        details: ``passes``, ``gates``, ``peak_anon_bytes`` and ``seconds`` of the compile, and
            ``artifact``: where the failed result was kept, or None.
    """

    def __init__(self, judgement: Judgement, report: dict[str, Any], kept: Path | None) -> None:
        kept_text = f"the result is in {kept}" if kept else "--keep-failed keeps the result"
        super().__init__(
            "; ".join(f"{gate.name}: {gate.reason}" for gate in judgement.failed),
            where="gates",
            hint=f"no artifact was written; --gate name=bound changes a bound, {kept_text}",
        )
        keys = ("passes", "gates", "peak_anon_bytes", "seconds")
        self.details = {
            "artifact": None if kept is None else str(kept),
            **{key: report[key] for key in keys},
        }


def not_judged(bounds: Mapping[str, float | None]) -> Judgement:
    """The judgement of a compile whose gates were switched off."""
    gates = _unmeasured(bounds, "the gates were switched off")
    warning = "the gates were switched off: nothing proves this artifact against its source"
    return Judgement(gates, measured=False, warnings=(warning,))


def judge(
    options: CompileOptions,
    lowered: Lowered,
    engine: EngineEntry,
    tokenizer: TokenizerEntry | None,
    artifact: Path,
) -> Judgement:
    """Measure the recipe's gates through the engine in the unfinished artifact.

    Raises:
        InputError: The evaluation text is unusable.
        UnavailableError: The engine cannot be loaded, although the machine has its features.
    """
    bounds = options.recipe.gates
    missing = engine.target.missing_on(host_features())
    if missing:
        reason = f"target {engine.target.name} needs {', '.join(missing)}, which this machine lacks"
        return _verdict(_unmeasured(bounds, reason), {}, options)
    report = _measure(options, lowered, engine, tokenizer, artifact)
    gates = tuple(g for g in report.gates if g.value is not None or g.bound is not None)
    return _verdict(gates, report.figures, options)


def _measure(
    options: CompileOptions,
    lowered: Lowered,
    engine: EngineEntry,
    tokenizer: TokenizerEntry | None,
    artifact: Path,
) -> GateReport:
    from optc.driver.limits import weight_count
    from optc.gates.measure import measure_gates
    from optc.gates.text import eval_windows

    windows = eval_windows(
        vocab_size=engine.spec.vocab_size,
        max_context=engine.spec.max_context,
        parameters=weight_count(lowered.reference),
        tokenizer_file=None if tokenizer is None else artifact / tokenizer.files[0],
        bos=None if tokenizer is None else tokenizer.bos_token_id,
        eos=None if tokenizer is None else next(iter(tokenizer.eos_token_ids), None),
        text_file=options.eval_text,
    )
    executable = options.backend.load(
        artifact / engine.folder, engine.spec, engine.data, usable_threads()
    )
    try:
        return measure_gates(
            lowered.reference,
            executable,
            windows,
            options.recipe.gates,
            max_ram_bytes=options.max_ram_bytes,
            progress=options.progress,
        )
    finally:
        executable.close()


def _verdict(
    gates: tuple[GateResult, ...], facts: dict[str, Any], options: CompileOptions
) -> Judgement:
    unmeasured = tuple(g for g in gates if g.bound is not None and g.value is None)
    failed = tuple(g for g in gates if g.passed is False)
    warnings: tuple[str, ...] = ()
    if options.allow_unmeasured:
        warnings = tuple(f"gate {g.name} was not measured: {g.reason}" for g in unmeasured)
    else:
        failed += unmeasured
    return Judgement(gates, measured=True, failed=failed, facts=facts, warnings=warnings)


def _unmeasured(bounds: Mapping[str, float | None], reason: str) -> tuple[GateResult, ...]:
    from optc.gates.measure import judge as judge_one

    return tuple(judge_one(name, None, bound, absent=reason) for name, bound in bounds.items())
