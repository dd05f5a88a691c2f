"""Gates of models of named tensors: engines in their loop, beside the source and a baseline."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from optc.artifact.manifest import EngineEntry
from optc.compiling.parts.baseline import open_baseline
from optc.proof.gates.measure import GateResult
from optc.runtime.executable.tensors import TensorsExecutable
from optc.system.hardware.machine import this_machine
from optc.system.hardware.target import usable_threads

if TYPE_CHECKING:
    import onnx_ir as ir

    from optc.importer.tensors.imported import ImportedTensors

#: Executables by the role of their engines.
Executables = Mapping[str, TensorsExecutable]
#: Bounds by gate; None is measured and not judged.
Bounds = Mapping[str, float | None]


class Closable(Protocol):
    """An opened engine."""

    def close(self) -> None:
        """Free it."""
        ...


E = TypeVar("E", bound=Closable)


class Judge(Protocol[E]):
    """Judges engines of one model."""

    @property
    def facts(self) -> Mapping[str, Any]:
        """Of the samples, for the report."""
        ...

    def open(self, folder: Path, entry: EngineEntry, threads: int) -> E:
        """Load the engine whose files lie in a folder, with so many threads."""
        ...

    def measure(
        self, engines: Mapping[str, E], baseline: Executables, bounds: Bounds, name: str
    ) -> Iterable[GateResult]:
        """Verdicts on engines by role, beside the baseline's; the name is the target's."""
        ...


class SourceExecutable:
    """The source's own outputs as an executable."""

    batch_invariant = False

    def __init__(self, part: ImportedTensors) -> None:
        if part.reference is None:
            raise ValueError(f"{part.name} came without its source")
        self._run = part.reference

    def run(self, inputs: Mapping[str, Any]) -> dict[str, Any]:
        """Outputs by name."""
        return dict(self._run(inputs))

    def close(self) -> None:
        """Nothing is held."""


def source_of(graphs: Mapping[str, ImportedTensors]) -> Executables:
    """The source's parts as executables, by role."""
    return {role: SourceExecutable(part) for role, part in graphs.items()}


def measure_parts(
    judge: Judge[E],
    bounds: Bounds,
    graphs: Mapping[str, ImportedTensors],
    originals: Mapping[str, ir.Model],
    engines: Iterable[tuple[EngineEntry, Sequence[EngineEntry]]],
    artifact: Path,
    scratch: Path,
) -> list[GateResult]:
    """Verdicts on every target engine; those that do not run here have none.

    Args:
        judge: Opens and measures engines.
        bounds: By gate.
        graphs: The imported parts, by role.
        originals: The graphs as they were imported, by role, for the baseline; they are built, and
            so changed.
        engines: Target engines, each with all that run with it, itself among them.
        artifact: Folder of the engines' folders.
        scratch: An empty folder for the baseline.
    """
    threads, verdicts = usable_threads(), list[GateResult]()
    with ExitStack() as stack:
        baseline = {
            role: _closing(stack, open_baseline(originals[role], part, scratch / role, threads))
            for role, part in graphs.items()
        }
        for target, beside in engines:
            if reason := this_machine().misfit(target.target):
                verdicts += _unmeasured(bounds, reason, target.name)
                continue
            with ExitStack() as own:
                found = {
                    entry.role: _closing(own, judge.open(artifact / entry.folder, entry, threads))
                    for entry in beside
                }
                verdicts += judge.measure(found, baseline, bounds, target.name)
    return verdicts


def _closing(stack: ExitStack, engine: E) -> E:
    stack.callback(engine.close)
    return engine


def _unmeasured(bounds: Bounds, reason: str, engine: str) -> Sequence[GateResult]:
    """Gates of an engine that cannot run here."""
    return [
        GateResult(name, None, bound, None, "none", reason, engine)
        for name, bound in bounds.items()
    ]
