"""The gates of engines of named tensors."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from optc import registry
from optc.artifact.manifest import EngineEntry
from optc.artifact.writer import ArtifactWriter
from optc.backend import TensorsBuilder
from optc.compiling.building.built_engine import BuiltEngine
from optc.compiling.judging.judge import Judgement, not_judged
from optc.errors import ArtifactError, EngineError, InputError, UnsupportedError
from optc.proof.gates.measure import GateResult, is_open
from optc.proof.gates.tensors.measure import Run, measure_tensors
from optc.proof.gates.tensors.padding import unpadded
from optc.runtime.tensors.engine import open_folder
from optc.system.hardware.machine import this_machine
from optc.system.hardware.target import parse_target, usable_threads
from optc.system.options import CompileOptions

if TYPE_CHECKING:
    import onnx_ir as ir

    from optc.compiling.recipes.recipe import Recipe
    from optc.importer.tensors.imported import ImportedTensors
    from optc.runtime.executable.tensors import TensorsExecutable

Array = npt.NDArray[Any]
Tensors = Mapping[str, Array]
#: So many samples are tried before all others: more take long where a model embeds sentences.
_CHECKED = 8


def judge_tensors(
    recipe: Recipe,
    imported: ImportedTensors,
    original: ir.Model,
    samples: Sequence[Tensors],
    engines: Sequence[BuiltEngine],
    writer: ArtifactWriter,
    asked: CompileOptions,
) -> Judgement:
    """Measure the recipe's gates through every engine that runs here.

    Args:
        recipe: Its gates count.
        imported: With the source's own outputs, if it can give them.
        original: The graph as imported, for the baseline; it is built, and so changed.
        samples: Inputs.
        engines: Built under ``writer``.
        writer: Of the artifact.
        asked: Whether gates are wanted, and may be left unmeasured.
    """
    known = imported.task.gates  # a recipe has gates of several tasks
    bounds = {name: bound for name, bound in recipe.gates.items() if name in known}
    if asked.no_gates:
        return not_judged(bounds, engines)
    entries = [(built.entry, writer.folder / built.entry.folder) for built in engines]
    with writer.scratch() as folder:
        verdicts = measure_engines(bounds, imported, original, samples, entries, folder)
    strict = not (asked.allow_unmeasured or asked.keep_failed)
    failed = [one for one in verdicts if one.passed is False or (strict and is_open(one))]
    shown = tuple(one for one in verdicts if one.value is not None or one.bound is not None)
    facts = {
        "samples": len(samples),
        "reference": "source" if imported.reference else "float32 graph in ONNX Runtime",
    }
    return Judgement(shown, measured=True, failed=tuple(failed), facts=facts)


def measure_engines(
    bounds: Mapping[str, float | None],
    imported: ImportedTensors,
    original: ir.Model,
    samples: Sequence[Tensors],
    engines: Sequence[tuple[EngineEntry, Path]],
    scratch: Path,
) -> list[GateResult]:
    """Verdicts on every engine; those that do not run here have none.

    Args:
        bounds: By gate.
        imported: With the source's own outputs, if it can give them.
        original: The graph as imported, for the baseline; it is built, and so changed.
        samples: Inputs.
        engines: Each with its folder.
        scratch: An empty folder for the baseline.

    Raises:
        InputError: The model itself does not take a sample.
    """
    threads = usable_threads()
    baseline = _baseline(original, imported, scratch, threads)
    _check_samples(baseline, samples[:_CHECKED])
    reference = unpadded(KeptOutputs(imported.reference or baseline.run), imported.padding)
    verdicts: list[GateResult] = []
    for entry, folder in engines:
        reason = this_machine().misfit(entry.target)
        if reason:
            verdicts += _unmeasured(bounds, reason, entry.name)
            continue
        engine = open_folder(folder, entry, threads)
        verdicts += measure_tensors(
            unpadded(engine.run, imported.padding),
            reference,
            unpadded(baseline.run, imported.padding),
            samples,
            bounds,
            entry.name,
            imported.task,
        )
        engine.close()
    baseline.close()
    return verdicts


def _check_samples(baseline: TensorsExecutable, samples: Sequence[Tensors]) -> None:
    """Refuse samples that the model itself does not take, such as images of an odd size.

    Raises:
        InputError: One is none.
    """
    for index, sample in enumerate(samples):
        try:
            baseline.run(sample)
        except EngineError as error:
            shapes = ", ".join(f"{name} {list(array.shape)}" for name, array in sample.items())
            raise InputError(
                f"the model does not take sample {index} ({shapes}): {error.message}",
                where="--inputs",
                hint="--inputs FILE.npz gives inputs that it takes; --dim NAME=LEAST..MOST bounds "
                "the sizes of a dimension",
            ) from error


class KeptOutputs:
    """Outputs for samples, each computed once, however often its engines are judged."""

    def __init__(self, run: Run) -> None:
        self._run = run
        self._found: dict[bytes, Tensors] = {}

    def __call__(self, sample: Tensors) -> Tensors:
        """Outputs for a sample."""
        key = hashlib.blake2b()
        for name, array in sorted(sample.items()):
            key.update(f"{name} {array.dtype} {array.shape}\n".encode())
            key.update(np.ascontiguousarray(array).data)
        found = key.digest()
        if found not in self._found:
            self._found[found] = self._run(sample)
        return self._found[found]


def _baseline(
    original: ir.Model, imported: ImportedTensors, folder: Path, threads: int
) -> TensorsExecutable:
    """The graph as it was imported, in ONNX Runtime on the CPU."""
    backend = registry.backend("onnxruntime")
    if not isinstance(backend, TensorsBuilder):
        raise UnsupportedError("runs no models of named tensors", where="backend onnxruntime")
    target = parse_target("native")
    build = backend.build_tensors(original, imported.interface, target, folder)
    try:
        return backend.load_tensors(folder, imported.interface, build.backend_data, threads)
    except ArtifactError as error:  # it was written a moment ago: the graph is at fault
        raise UnsupportedError(
            f"ONNX Runtime does not take the graph: {error.message}",
            where=imported.name,
            hint="export it with standard operators",
        ) from error


def _unmeasured(bounds: Mapping[str, float | None], reason: str, engine: str) -> list[GateResult]:
    return [
        GateResult(name, None, bound, None, "none", reason, engine)
        for name, bound in bounds.items()
    ]
