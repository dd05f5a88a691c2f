"""Gates of built engines, each measured where it can run, against one float32 reference."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any

from optc import registry
from optc.artifact.manifest import EngineEntry, TokenizerEntry
from optc.backend import LoweredOnnxBackend
from optc.compiling.judging.judged_text import JudgedText, ModelLimits, judged_text
from optc.compiling.resolving.limits import weight_count
from optc.errors import OptcError
from optc.proof.gates import measure
from optc.proof.gates.answers.measure import AnswerReport, measure_answers, not_applicable
from optc.proof.gates.answers.score import AnswerReference
from optc.proof.gates.measure import GateReport, GateResult, judge
from optc.proof.gates.weights_room import weights_room
from optc.proof.reference.blockwise import BlockwiseReference
from optc.runtime.executable.executable import Executable
from optc.system.hardware.machine import this_machine
from optc.system.hardware.target import usable_threads
from optc.system.progress import Progress, no_progress

if TYPE_CHECKING:
    import onnx_ir as ir

LOWERED = "lowered-onnx"
#: Why answers were not measured where prose was enough to tell.
ENDED = "another gate could not hold any more"


@dataclass(frozen=True)
class GateContext:
    """The inputs that all engines of a compile are judged by.

    Attributes:
        reference: The model in dense form.
        bounds: Bound by gate name; None is measured and reported, not judged.
        artifact: Folder of the artifact, finished or not.
        tokenizer: The artifact's.
        eval_text: None is the shipped one.
        max_ram_bytes: 0 is no limit.
        progress: Told what goes on.
        opened: The reference, where it was opened before: it is used and not closed.
    """

    reference: ir.Model
    bounds: Mapping[str, float | None]
    artifact: Path
    tokenizer: TokenizerEntry | None = None
    eval_text: Path | None = None
    max_ram_bytes: int = 0
    progress: Progress = no_progress
    opened: BlockwiseReference | None = None


@dataclass(frozen=True)
class EngineVerdict:
    """The gates of one engine.

    Attributes:
        gates: That have a value or a bound, measured or not.
        facts: Tokens, windows, conventions and speeds, for the report.
        warnings: What the user should know.
    """

    gates: tuple[GateResult, ...]
    facts: dict[str, Any] = field(default_factory=dict)
    warnings: tuple[str, ...] = ()


class EngineGates:
    """Judges engines one after the other; a context manager around the reference they share."""

    def __init__(self, context: GateContext) -> None:
        self._context = context
        self._threads = usable_threads()
        self._reference = context.opened
        self._answers: AnswerReference | None = None
        self._texts: dict[ModelLimits, JudgedText] = {}

    def __enter__(self) -> EngineGates:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self._reference is not None and self._reference is not self._context.opened:
            self._reference.close()

    def judge(self, entry: EngineEntry, lowered_onnx: Path | None = None) -> EngineVerdict:
        """Measure an engine's gates; where it cannot run here they have no value but a reason,
        and the model it was lowered to, if there is one, is judged in its stead.

        Raises:
            InputError: The evaluation text is unusable.
            UnavailableError: The engine cannot be loaded, although the machine fits.
        """
        backend = registry.step_backend(entry.backend)
        reason = backend.can_load(entry, this_machine())
        if not reason:
            context = self._context
            folder = context.artifact / entry.folder
            report = self._measure(
                entry, lambda: backend.load(folder, entry.spec, entry.data, self._threads)
            )
            return EngineVerdict(
                _named(_kept(report), entry.name), report.figures, _left_open(report, context)
            )
        verdict = unmeasured(_applicable(self._context), reason, entry.name)
        return verdict if lowered_onnx is None else self._with_lowered(verdict, entry, lowered_onnx)

    def _with_lowered(
        self, verdict: EngineVerdict, entry: EngineEntry, lowered_onnx: Path
    ) -> EngineVerdict:
        runner = lowered_runner()
        if runner is None:
            problem = "no installed backend runs lowered ONNX models"
        else:
            try:
                report = self._measure(
                    entry,
                    lambda: runner.open_lowered(lowered_onnx, entry.spec, self._threads),
                    speed=False,
                )
            except OptcError as error:
                problem = error.render()
            else:
                gates = tuple(
                    replace(gate, measured_on=LOWERED)
                    for gate in _named(_kept(report), entry.name)
                    if gate.value is not None
                )
                return replace(
                    verdict, gates=verdict.gates + gates, facts={LOWERED: report.figures}
                )
        warning = f"the model that {entry.name} was lowered to was not judged: {problem}"
        return replace(verdict, warnings=(*verdict.warnings, warning))

    def _measure(
        self, entry: EngineEntry, open_engine: Callable[[], Executable], *, speed: bool = True
    ) -> GateReport:
        context, bounds = self._context, self._context.bounds
        text = self._text(entry)
        if self._reference is None:
            room = weights_room(context.max_ram_bytes)
            self._reference = BlockwiseReference(context.reference, self._threads, room)
        executable = open_engine()
        try:
            answered = None if text.prose else self._answered(text, executable)
            report = measure.measure_gates(
                self._reference,
                executable,
                text.windows,
                bounds,
                max_ram_bytes=context.max_ram_bytes,
                speed=speed,
                compared=None if answered is None else answered.compared,
                progress=context.progress,
            )
            ended = any(gate.windows is not None for gate in report.gates)
            if answered is None and not ended:
                answered = self._answered(text, executable)
        finally:
            executable.close()
        if answered is None:
            reason = ENDED if ended else text.absent
            gates, figures = not_applicable(bounds, reason), {"not_measured": reason}
        else:
            gates, figures = answered.gates, answered.figures
        return GateReport(_in_order(report.gates, gates), {**report.figures, "answers": figures})

    def _answered(self, text: JudgedText, executable: Executable) -> AnswerReport | None:
        """Figures of an engine on conversations; None where there are none."""
        reference, given = self._reference, text.conversations
        if given is None or reference is None:
            return None
        if self._answers is None or self._answers.conversations is not given:
            self._answers = AnswerReference(reference, given)
        return measure_answers(
            self._answers, executable, self._context.bounds, progress=self._context.progress
        )

    def _text(self, entry: EngineEntry) -> JudgedText:
        """The text that an engine is judged on, rendered once for engines of the same limits."""
        context, spec = self._context, entry.spec
        limits = ModelLimits(spec.vocab_size, spec.max_context, weight_count(context.reference))
        if limits not in self._texts:
            self._texts[limits] = judged_text(
                limits, context.artifact, context.tokenizer, context.eval_text
            )
        return self._texts[limits]


def lowered_runner() -> LoweredOnnxBackend | None:
    """The installed backend that runs lowered ONNX models on the CPU, if there is one."""
    backends = map(registry.backend, registry.backend_names())
    return next((b for b in backends if isinstance(b, LoweredOnnxBackend)), None)


def unmeasured(bounds: Mapping[str, float | None], reason: str, engine: str) -> EngineVerdict:
    """All gates of an engine without values, for this reason."""
    gates = tuple(judge(name, None, bound, absent=reason) for name, bound in bounds.items())
    return EngineVerdict(_named(gates, engine))


def _kept(report: GateReport) -> tuple[GateResult, ...]:
    """Gates that have a value or a bound; and those of answers that say why they have none."""
    return tuple(
        g
        for g in report.gates
        if g.value is not None or g.bound is not None or g.name in measure.ANSWER_GATES
    )


def _in_order(
    gates: tuple[GateResult, ...], answers: tuple[GateResult, ...]
) -> tuple[GateResult, ...]:
    """All gates, those of speed last."""
    speed = tuple(gate for gate in gates if gate.name in measure.SPEED_GATES)
    return (*(gate for gate in gates if gate not in speed), *answers, *speed)


def _applicable(context: GateContext) -> dict[str, float | None]:
    """The bounds without those of answers, where no template could render any."""
    has_template = context.tokenizer is not None and bool(context.tokenizer.chat_template)
    answers: tuple[str, ...] = () if has_template else measure.ANSWER_GATES
    return {name: bound for name, bound in context.bounds.items() if name not in answers}


def _left_open(report: GateReport, context: GateContext) -> tuple[str, ...]:
    """A warning where gates that the recipe bounds have nothing to be measured on."""
    reason = report.figures.get("answers", {}).get("not_measured")
    names = [n for n in measure.ANSWER_GATES if context.bounds.get(n) is not None]
    if reason is None or not names:
        return ()
    return (f"gates that do not apply: {', '.join(names)}: {reason}",)


def _named(gates: tuple[GateResult, ...], engine: str) -> tuple[GateResult, ...]:
    return tuple(replace(gate, engine=engine) for gate in gates)
