"""The graph as it was imported, in ONNX Runtime: engines are compared with it, and it says what
inputs a model takes."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from optc import registry
from optc.backend import TensorsBuilder
from optc.errors import ArtifactError, UnsupportedError
from optc.runtime.executable.tensors import TensorsExecutable
from optc.system.hardware.target import parse_target

if TYPE_CHECKING:
    import onnx_ir as ir

    from optc.importer.tensors.imported import ImportedTensors

#: The backend of baselines.
BASELINE = "onnxruntime"


def build_baseline(model: ir.Model, part: ImportedTensors, folder: Path) -> dict[str, Any]:
    """Build an engine for the CPU; gives what its backend wants to load it.

    Args:
        model: Is built, and so changed.
        part: Whose graph it is.
        folder: Is made.
    """
    folder.mkdir()
    return (
        _backend().build_tensors(model, part.interface, parse_target("native"), folder).backend_data
    )


def open_baseline(
    model: ir.Model, part: ImportedTensors, folder: Path, threads: int
) -> TensorsExecutable:
    """`build_baseline`, loaded, with so many threads.

    Raises:
        UnsupportedError: ONNX Runtime does not take the graph.
    """
    data = build_baseline(model, part, folder)
    try:
        return _backend().load_tensors(folder, part.interface, data, threads)
    except ArtifactError as error:  # it was written a moment ago: the graph is at fault
        raise UnsupportedError(
            f"ONNX Runtime does not take the graph: {error.message}",
            where=part.name,
            hint="export it with standard operators",
        ) from error


def _backend() -> TensorsBuilder:
    backend = registry.backend(BASELINE)
    assert isinstance(backend, TensorsBuilder)
    return backend
