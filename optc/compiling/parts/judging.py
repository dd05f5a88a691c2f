"""Gates of models of several parts: engines in a loop, beside the source and a baseline."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar

from optc import registry
from optc.artifact.manifest import EngineEntry
from optc.artifact.writer import ArtifactWriter
from optc.backend import TensorsBuilder
from optc.compiling.building.built_engine import TARGET, BuiltEngine
from optc.compiling.judging.judge import Judgement, not_judged
from optc.errors import UnsupportedError
from optc.proof.gates.measure import GateResult, is_open
from optc.runtime.executable.tensors import TensorsExecutable
from optc.system.hardware.machine import this_machine
from optc.system.hardware.target import parse_target, usable_threads
from optc.system.options import CompileOptions

if TYPE_CHECKING:
    import onnx_ir as ir

    from optc.compiling.recipes.recipe import Recipe
    from optc.importer.tensors.imported import ImportedTensors

#: Executables by the role of their engines.
Executables = Mapping[str, TensorsExecutable]


class Closable(Protocol):
    """An opened engine."""

    def close(self) -> None:
        """Free it."""
        ...


E = TypeVar("E", bound=Closable)


@dataclass(frozen=True)
class Measuring(Generic[E]):
    """Measures one set of engines.

    Attributes:
        opens: Loads the engine whose files lie in a folder, with so many threads.
        measure: Verdicts on a set by role, beside the baseline's; the name is the target's.
    """

    opens: Callable[[Path, EngineEntry, int], E]
    measure: Callable[[Mapping[str, E], Executables, str], Iterable[GateResult]]


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


def judge_parts(
    recipe: Recipe,
    writer: ArtifactWriter,
    asked: CompileOptions,
    graphs: Mapping[str, ImportedTensors],
    originals: Mapping[str, ir.Model],
    engines: Sequence[BuiltEngine],
    measuring: Measuring[E],
    facts: Mapping[str, Any],
) -> Judgement:
    """Measure the recipe's gates through every set of engines that runs here.

    Args:
        recipe: Its gates count.
        writer: Of the artifact; engines were built under it.
        asked: Whether gates are wanted, and may be left unmeasured.
        graphs: The imported parts, by role.
        originals: The graphs as they were imported, by role, for the baseline; they are built, and
            so changed.
        engines: Built ones of all parts and targets.
        measuring: Gives the verdicts on one set.
        facts: For the report, beside what is known here.
    """
    targets = [built for built in engines if built.entry.role == TARGET]
    if asked.no_gates:
        return not_judged(recipe.gates, targets)
    threads, verdicts = usable_threads(), list[GateResult]()
    with ExitStack() as stack:
        folder = stack.enter_context(writer.scratch())
        baseline = {
            role: _closing(stack, _baseline(originals[role], part, folder / role, threads))
            for role, part in graphs.items()
        }
        for built in targets:
            if reason := this_machine().misfit(built.request.target):
                verdicts += _unmeasured(recipe.gates, reason, built.entry.name)
                continue
            beside = [one.entry for one in engines if one.request is built.request]
            with ExitStack() as own:
                found = {
                    entry.role: _closing(
                        own, measuring.opens(writer.folder / entry.folder, entry, threads)
                    )
                    for entry in beside
                }
                verdicts += measuring.measure(found, baseline, built.entry.name)
    strict = not (asked.allow_unmeasured or asked.keep_failed)
    failed = [one for one in verdicts if one.passed is False or (strict and is_open(one))]
    shown = tuple(one for one in verdicts if one.value is not None or one.bound is not None)
    told = {**facts, "reference": "source"}
    return Judgement(shown, measured=True, failed=tuple(failed), facts=told)


def _closing(stack: ExitStack, engine: E) -> E:
    stack.callback(engine.close)
    return engine


def _baseline(
    model: ir.Model, part: ImportedTensors, folder: Path, threads: int
) -> TensorsExecutable:
    """The graph as it was imported, in ONNX Runtime on the CPU."""
    backend = registry.backend("onnxruntime")
    if not isinstance(backend, TensorsBuilder):
        raise UnsupportedError("runs no models of named tensors", where="backend onnxruntime")
    folder.mkdir()
    build = backend.build_tensors(model, part.interface, parse_target("native"), folder)
    return backend.load_tensors(folder, part.interface, build.backend_data, threads)


def _unmeasured(
    bounds: Mapping[str, float | None], reason: str, engine: str
) -> Sequence[GateResult]:
    """Gates of an engine that cannot run here."""
    return [
        GateResult(name, None, bound, None, "none", reason, engine)
        for name, bound in bounds.items()
    ]
