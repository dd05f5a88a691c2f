"""Gates of built engines, each measured where it can run, against one float32 reference."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any

from optc import registry
from optc.artifact import EngineEntry, TokenizerEntry
from optc.backend import LoweredOnnxBackend
from optc.driver.compiling.limits import weight_count
from optc.errors import OptcError
from optc.executable.executable import Executable
from optc.gates import measure
from optc.gates.measure import GateReport, GateResult, judge
from optc.machine import this_machine
from optc.progress import Progress, no_progress
from optc.reference.blockwise import BlockwiseReference
from optc.reference.text import EvalWindows, eval_windows
from optc.target import usable_threads

if TYPE_CHECKING:
    import onnx_ir as ir

LOWERED = "lowered-onnx"


@dataclass(frozen=True)
class GateContext:
    """What all engines of a compile are judged by.

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
        backend = registry.backend(entry.backend)
        reason = backend.can_load(entry, this_machine())
        if not reason:
            folder = self._context.artifact / entry.folder
            report = self._measure(
                entry, lambda: backend.load(folder, entry.spec, entry.data, self._threads)
            )
            return EngineVerdict(_named(_kept(report), entry.name), report.figures)
        verdict = unmeasured(self._context.bounds, reason, entry.name)
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
        context = self._context
        windows = self._windows(entry)
        if self._reference is None:
            self._reference = BlockwiseReference(context.reference, self._threads)
        executable = open_engine()
        try:
            return measure.measure_gates(
                self._reference,
                executable,
                windows,
                context.bounds,
                max_ram_bytes=context.max_ram_bytes,
                speed=speed,
                progress=context.progress,
            )
        finally:
            executable.close()

    def _windows(self, entry: EngineEntry) -> EvalWindows:
        context, tokenizer = self._context, self._context.tokenizer
        return eval_windows(
            vocab_size=entry.spec.vocab_size,
            max_context=entry.spec.max_context,
            parameters=weight_count(context.reference),
            tokenizer_file=None if tokenizer is None else context.artifact / tokenizer.files[0],
            bos=None if tokenizer is None else tokenizer.bos_token_id,
            eos=None if tokenizer is None else next(iter(tokenizer.eos_token_ids), None),
            text_file=context.eval_text,
        )


def lowered_runner() -> LoweredOnnxBackend | None:
    """The installed backend that runs lowered ONNX models on the CPU, if there is one."""
    backends = map(registry.backend, registry.backend_names())
    return next((b for b in backends if isinstance(b, LoweredOnnxBackend)), None)


def unmeasured(bounds: Mapping[str, float | None], reason: str, engine: str) -> EngineVerdict:
    """All gates of an engine without values, for this reason."""
    gates = tuple(judge(name, None, bound, absent=reason) for name, bound in bounds.items())
    return EngineVerdict(_named(gates, engine))


def _kept(report: GateReport) -> tuple[GateResult, ...]:
    return tuple(g for g in report.gates if g.value is not None or g.bound is not None)


def _named(gates: tuple[GateResult, ...], engine: str) -> tuple[GateResult, ...]:
    return tuple(replace(gate, engine=engine) for gate in gates)
