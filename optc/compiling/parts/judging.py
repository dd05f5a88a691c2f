"""Common to gates of several parts: the source and the baseline as executables."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from optc import registry
from optc.backend import TensorsBuilder
from optc.errors import UnsupportedError
from optc.proof.gates.measure import GateResult
from optc.runtime.executable.tensors import TensorsExecutable
from optc.system.hardware.target import parse_target

if TYPE_CHECKING:
    import onnx_ir as ir

    from optc.importer.tensors.imported import ImportedTensors


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


def baseline_of(
    model: ir.Model, part: ImportedTensors, folder: Path, threads: int
) -> TensorsExecutable:
    """The graph as it was imported, in ONNX Runtime on the CPU; ``model`` is changed."""
    backend = registry.backend("onnxruntime")
    if not isinstance(backend, TensorsBuilder):
        raise UnsupportedError("runs no models of named tensors", where="backend onnxruntime")
    folder.mkdir()
    build = backend.build_tensors(model, part.interface, parse_target("native"), folder)
    return backend.load_tensors(folder, part.interface, build.backend_data, threads)


def unmeasured(
    bounds: Mapping[str, float | None], reason: str, engine: str
) -> Sequence[GateResult]:
    """Gates of an engine that cannot run here."""
    return [
        GateResult(name, None, bound, None, "none", reason, engine)
        for name, bound in bounds.items()
    ]
