"""Gates that could not be measured where an artifact was compiled: what ``optc verify --gates``
does, on a machine that can."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from optc.artifact.artifact import Artifact
from optc.artifact.choose import reason_against
from optc.artifact.jsonio import pretty_json
from optc.artifact.manifest import REPORT_NAME, EngineEntry, Manifest
from optc.compiling.judging.gates_text import gates_text
from optc.compiling.judging.reference_model import (
    check_source,
    check_source_folder,
    import_reference,
    trimmed_vocabulary,
)
from optc.compiling.resolving.machine import machine_facts
from optc.errors import GateError
from optc.system.hardware.machine import this_machine
from optc.system.progress import Progress, no_progress
from optc.system.sources.steady import reads_steadily, steady_so_far
from optc.system.whole_file import write_whole

if TYPE_CHECKING:
    from optc.proof.gates.measure import GateResult


class OpenGatesError(GateError):
    """Gates that do not hold, or could not be measured here either.

    Attributes:
        details: ``gates``: all of them.
    """

    def __init__(self, bad: Sequence[GateResult], every: Sequence[GateResult]) -> None:
        super().__init__(
            gates_text(bad, several=True),
            where="gates",
            hint="do not serve these engines before their gates hold on the machine they are for",
        )
        self.details = {"gates": [asdict(gate) for gate in every]}


@dataclass(frozen=True)
class VerifiedGates:
    """The result of verifying gates.

    Attributes:
        gates: Of every engine with gates that had no verdict, measured now or not.
        warnings: What the user should know.
    """

    gates: tuple[GateResult, ...]
    warnings: tuple[str, ...] = ()

    def check(self) -> None:
        """Check that all gates with a bound hold.

        Raises:
            OpenGatesError: One does not, or could not be measured here either.
        """
        bad = [g for g in self.gates if g.bound is not None and g.passed is not True]
        if bad:
            raise OpenGatesError(bad, self.gates)


@reads_steadily("reference", "eval_text")
def verify_gates(
    artifact: Artifact,
    reference: Path,
    *,
    eval_text: Path | None = None,
    allow_remote_code: bool = False,
    progress: Progress = no_progress,
) -> VerifiedGates:
    """Measure the gates without verdict of every engine that this machine can load.

    The manifest stays as it is, since it is the artifact's identity; values and verdicts go to
    ``report.json``, with the facts of this machine.

    Args:
        artifact: Its files have been checked.
        reference: Folder of the source model.
        eval_text: ``.jsonl`` or plain text; None is the shipped one.
        allow_remote_code: Run Python code that the reference's folder brings.
        progress: Told what goes on.

    Raises:
        InputError: The reference is not what was compiled, the text is unusable, or one of both
            changed meanwhile.
        UnavailableError: An engine cannot be loaded, although the machine fits, or this optc does
            not know the artifact's task.
    """
    from optc.compiling.judging.engine_gates import EngineGates, GateContext, unmeasured

    artifact.check_task()
    manifest, bounds = artifact.manifest, bounds_of(artifact.manifest)
    engines = without_verdict(manifest)
    reasons = {engine.name: reason_against(engine, this_machine()) for engine in engines}
    if all(reasons.values()):  # nothing will be measured, and so nothing imported
        check_source_folder(reference, manifest)
    if not engines:
        return VerifiedGates((), ("no gate is without a verdict",))
    if all(reasons.values()):
        verdicts = [unmeasured(bounds, reasons[e.name], e.name) for e in engines]
        return VerifiedGates(tuple(gate for verdict in verdicts for gate in verdict.gates))
    imported = import_reference(
        reference,
        engines[0],
        progress,
        allow_remote_code=allow_remote_code,
        kept=trimmed_vocabulary(artifact),
    )
    check_source(imported.source_digest, manifest, reference)
    context = GateContext(
        imported.model, bounds, artifact.path, manifest.tokenizer, eval_text, progress=progress
    )
    with EngineGates(context) as gates, steady_so_far():
        verdicts = [gates.judge(engine) for engine in engines]
    found = tuple(gate for verdict in verdicts for gate in verdict.gates)
    measured = [engine.name for engine in engines if not reasons[engine.name]]
    return VerifiedGates(found, keep_verdicts(artifact, measured, found))


def without_verdict(manifest: Manifest) -> list[EngineEntry]:
    """Engines with a bounded gate that was not judged on the engine itself."""
    names = {
        gate.engine
        for gate in manifest.gates
        if gate.bound is not None and gate.passed is None and not gate.lowered
    }
    return [engine for engine in manifest.engines if engine.name in names]


def bounds_of(manifest: Manifest) -> dict[str, float | None]:
    """The recipe's bounds by gate: the same for every engine."""
    return {gate.name: gate.bound for gate in manifest.gates if not gate.lowered}


def keep_verdicts(
    artifact: Artifact, engines: Sequence[str], found: Sequence[GateResult]
) -> tuple[str, ...]:
    """Put what was measured of ``engines`` into the report; a warning where that cannot be."""
    report = artifact.report()
    replaced = [
        gate
        for gate in report.get("gates", [])
        if gate.get("engine", "target") not in engines or gate["measured_on"] == "lowered-onnx"
    ]
    report["gates"] = replaced + [asdict(gate) for gate in found if gate.engine in engines]
    fact: dict[str, Any] = {"engines": list(engines), "machine": machine_facts()}
    report["verified"] = [*report.get("verified", []), fact]
    path = artifact.path / REPORT_NAME
    try:
        write_whole(path, pretty_json(report))
    except OSError as error:
        return (f"{path} could not be written, so the verdicts are not kept: {error.strerror}",)
    return ()
