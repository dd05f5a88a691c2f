"""The verdict on a compile: the gates of all its engines, and which of them forbid the artifact."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from optc.compiling.building.built_engine import BuiltEngine
from optc.compiling.judging.gates_text import gates_text
from optc.compiling.resolving.options import ResolvedOptions
from optc.errors import GateError
from optc.proof.conditions.decisions import decisions_of

if TYPE_CHECKING:  # the gates bring ONNX Runtime, which a compile without them does not need
    from optc.artifact.manifest import TokenizerEntry
    from optc.compiling.judging.engine_gates import EngineVerdict
    from optc.compiling.lowering.lowering import Lowered
    from optc.proof.gates.measure import GateResult
    from optc.proof.reference.blockwise import BlockwiseReference


@dataclass(frozen=True)
class Judgement:
    """All gates of a compile.

    Attributes:
        gates: Every gate of every engine that has a value or a bound.
        measured: False where the gates were switched off.
        failed: The gates that forbid the artifact.
        facts: Tokens, windows, conventions and speeds by engine, for the report.
        warnings: What the user should know.
    """

    gates: tuple[GateResult, ...]
    measured: bool
    failed: tuple[GateResult, ...] = ()
    facts: dict[str, Any] = field(default_factory=dict)
    warnings: tuple[str, ...] = ()


class GatesFailedError(GateError):
    """Gates that failed, with what was measured.

    ``likely`` names a recipe that may hold (`optc.compiling.ladder.next_rung`).

    Attributes:
        details: ``passes``, ``gates``, ``peak_anon_bytes``, ``seconds`` and ``warnings`` of the
            compile, with ``--bisect`` also ``bisect``, ``decisions`` by engine
            (`optc.proof.conditions.decisions`), and ``artifact``: where the failed result was kept,
            or None.
    """

    def __init__(
        self, judgement: Judgement, report: dict[str, Any], kept: Path | None, likely: str = ""
    ) -> None:
        several = len({gate.engine for gate in judgement.gates}) > 1
        ways = _ways_out(judgement.failed, kept, report)
        super().__init__(
            gates_text(judgement.failed, several),
            where="gates",
            hint="; ".join(filter(None, (_outcome(kept), likely, ways))),
        )
        keys = ("passes", "gates", "peak_anon_bytes", "seconds", "warnings", "bisect")
        self.details = {
            "artifact": None if kept is None else str(kept),
            **{key: report[key] for key in keys if key in report},
            "decisions": decisions_of(report.get("evaluation", {})),
        }


def _ways_out(failed: Sequence[GateResult], kept: Path | None, report: dict[str, Any]) -> str:
    """Advice to the user about gates that failed or have no verdict."""
    ways = []
    if any(gate.passed is None for gate in failed):
        ways.append("--allow-unmeasured lets through what cannot be measured here")
    if any(gate.passed is False for gate in failed):
        ways.append("--gate name=bound changes a bound")
        if "samples" in report:  # of named tensors
            ways.append("--inputs FILE.npz judges by inputs such as the model will get")
        else:
            ways.append("--eval-text FILE judges on text such as the model was trained on")
        if not report.keys() & {"bisect", "samples"}:
            ways.append("--bisect names the pass, node and tensor where the divergence begins")
    if not kept:
        ways.append("--keep-failed keeps the result")
    return ", ".join(ways)


def _outcome(kept: Path | None) -> str:
    """A clause that says if and where the result is kept."""
    if kept is None:
        return "no artifact was written"
    return f"the result is kept in {kept}, marked as failed"


def not_judged(bounds: Mapping[str, float | None], engines: Sequence[BuiltEngine]) -> Judgement:
    """The judgement of a compile whose gates were switched off."""
    from optc.compiling.judging.engine_gates import unmeasured

    reason = "the gates were switched off"
    verdicts = [unmeasured(bounds, reason, built.entry.name) for built in engines]
    warning = f"{reason}: nothing proves this artifact against its source"
    gates = tuple(gate for verdict in verdicts for gate in verdict.gates)
    return Judgement(gates, measured=False, warnings=(warning,))


def judge(
    options: ResolvedOptions,
    lowered: Lowered,
    engines: Sequence[BuiltEngine],
    tokenizer: TokenizerEntry | None,
    artifact: Path,
    reference: BlockwiseReference | None = None,
) -> Judgement:
    """Measure the recipe's gates through every engine of the unfinished artifact that runs here.

    ``reference`` is ``lowered.reference`` where it was opened before, which it is left.

    Raises: as `optc.compiling.judging.engine_gates.EngineGates.judge`.
    """
    from optc.compiling.judging.engine_gates import EngineGates, GateContext

    context = GateContext(
        lowered.reference,
        options.recipe.gates,
        artifact,
        tokenizer,
        options.asked.eval_text,
        options.max_ram_bytes,
        options.progress,
        reference,
    )
    with EngineGates(context) as gates:
        verdicts = {
            built.entry.name: gates.judge(built.entry, built.build.lowered_onnx)
            for built in engines
        }
    return _judgement(verdicts, options)


def _judgement(verdicts: Mapping[str, EngineVerdict], options: ResolvedOptions) -> Judgement:
    from optc.proof.gates.measure import is_open

    gates = tuple(gate for verdict in verdicts.values() for gate in verdict.gates)
    unmeasured = tuple(gate for gate in gates if is_open(gate))
    failed = tuple(g for g in gates if g.passed is False)
    # Of several engines some say the same.
    warnings = list(dict.fromkeys(w for verdict in verdicts.values() for w in verdict.warnings))
    if options.asked.allow_unmeasured:
        if unmeasured:
            text = gates_text(unmeasured, several=len(verdicts) > 1)
            warnings.append(f"gates without a verdict: {text}")
    else:
        failed += unmeasured
    if all(gate.bound is None for gate in gates):
        warnings.append("no gate has a bound: the figures were measured, and nothing was judged")
    return Judgement(
        gates,
        measured=True,
        failed=failed,
        facts={name: verdict.facts for name, verdict in verdicts.items() if verdict.facts},
        warnings=tuple(warnings),
    )
