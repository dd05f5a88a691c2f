"""`running`: runs a graph as it was imported, to find out what it takes."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy.typing as npt

from optc import registry
from optc.backend import TensorsBuilder
from optc.errors import ArtifactError, EngineError
from optc.system.hardware.target import parse_target, usable_threads
from optc.system.scratch import Scratch

if TYPE_CHECKING:
    from optc.importer.tensors.imported import ImportedTensors

Tensors = Mapping[str, npt.NDArray[Any]]


@contextmanager
def running(imported: ImportedTensors) -> Iterator[Callable[[Tensors], Tensors]]:
    """Computes outputs in ONNX Runtime; raises an `EngineError` at each call where that does not
    take the graph at all, which judging says better."""
    backend = registry.backend("onnxruntime")
    assert isinstance(backend, TensorsBuilder)
    with Scratch("samples") as scratch:
        folder, interface = Path(scratch), imported.interface
        model = imported.model.clone()  # building changes it
        build = backend.build_tensors(model, interface, parse_target("native"), folder)
        try:
            data = build.backend_data
            engine = backend.load_tensors(folder, interface, data, usable_threads())
        except ArtifactError as error:
            yield _failing(error)
            return
        try:
            yield engine.run
        finally:
            engine.close()


def _failing(error: ArtifactError) -> Callable[[Tensors], Tensors]:
    def run(sample: Tensors) -> Tensors:
        raise EngineError(error.message) from error

    return run
