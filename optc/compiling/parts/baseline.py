"""The graph as it was imported, in ONNX Runtime: engines are compared with it, and it says what
inputs a model takes."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy.typing as npt

from optc import registry
from optc.compiling.parts.options import tensors_builder
from optc.errors import ArtifactError, EngineError, UnsupportedError
from optc.runtime.executable.tensors import TensorsExecutable
from optc.system.hardware.target import parse_target, usable_threads
from optc.system.scratch import Scratch

if TYPE_CHECKING:
    import onnx_ir as ir

    from optc.importer.tensors.imported import ImportedTensors

Tensors = Mapping[str, npt.NDArray[Any]]


def open_baseline(
    model: ir.Model, part: ImportedTensors, folder: Path, threads: int
) -> TensorsExecutable:
    """A graph in ONNX Runtime on the CPU.

    Args:
        model: Is built, and so changed.
        part: Whose graph it is.
        folder: Is made.
        threads: To compute with.

    Raises:
        UnsupportedError: ONNX Runtime does not take it.
    """
    backend = tensors_builder(registry.backend("onnxruntime"))
    folder.mkdir()
    build = backend.build_tensors(model, part.interface, parse_target("native"), folder)
    try:
        return backend.load_tensors(folder, part.interface, build.backend_data, threads)
    except ArtifactError as error:  # it was written a moment ago: the graph is at fault
        raise UnsupportedError(
            f"ONNX Runtime does not take the graph: {error.message}",
            where=part.name,
            hint="export it with standard operators",
        ) from error


@contextmanager
def running(part: ImportedTensors) -> Iterator[Callable[[Tensors], Tensors]]:
    """Computes a graph's outputs. A graph that ONNX Runtime does not take fails at each call with
    an `EngineError`: judging says what is wrong with it."""
    with Scratch("samples") as scratch:
        folder = Path(scratch) / "graph"
        try:
            engine = open_baseline(part.model.clone(), part, folder, usable_threads())
        except UnsupportedError as error:
            yield _failing(error)
            return
        with closing(engine):
            yield engine.run


def _failing(error: UnsupportedError) -> Callable[[Tensors], Tensors]:
    def run(sample: Tensors) -> Tensors:
        raise EngineError(error.message) from error

    return run
