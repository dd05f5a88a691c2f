"""Engines of models of named tensors: the graph as it is, its weights beside it."""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from msgspec import to_builtins

from optc.backends.onnxruntime.engine_data import MODEL_FILE, WEIGHTS_FILE, EngineData, read_data
from optc.backends.onnxruntime.loader import open_model, unusable
from optc.backends.onnxruntime.packages import CPU_PACKAGE, GPU_PACKAGE, OLDEST
from optc.backends.onnxruntime.providers import CPU, CUDA
from optc.errors import EngineError, UnavailableError
from optc.runtime.executable.tensors import Array, TensorsExecutable
from optc.runtime.executable.tensors_interface import TensorsInterface
from optc.system.hardware.target import saturates_pairs
from optc.system.logs.logger import logger

if TYPE_CHECKING:
    import onnx_ir as ir

    from optc.backend import EngineBuild
    from optc.system.hardware.target import Target

_LOG = logger(__name__)


def build_tensors(
    model: ir.Model, interface: TensorsInterface, target: Target, workdir: Path
) -> EngineBuild:
    """Write ``model`` and its weights (`optc.backend.TensorsBuilder.build_tensors`)."""
    import onnx_ir as ir

    from optc.backend import EngineBuild
    from optc.backends.onnxruntime.legalize.blocks import fuse_block_products
    from optc.backends.onnxruntime.legalize.masks import expand_masks, expand_tables
    from optc.backends.onnxruntime.saturation import saturates
    from optc.backends.onnxruntime.weights import store_weights

    started, cuda = time.perf_counter(), target.kind == "cuda"
    expand_masks(model)
    expand_tables(model)
    fuse_block_products(model)
    beyond = not cuda and saturates(model)
    size = store_weights(model, workdir / WEIGHTS_FILE)
    ir.save(model, workdir / MODEL_FILE)
    return EngineBuild(
        files=(MODEL_FILE, WEIGHTS_FILE),
        spec=interface,
        requires={GPU_PACKAGE if cuda else CPU_PACKAGE: f">={OLDEST}"},
        backend_data=to_builtins(EngineData(CUDA if cuda else CPU, OLDEST, beyond)),
        report={"build_seconds": time.perf_counter() - started, "weight_bytes": size},
        weight_bytes=size,
    )


class OnnxTensors:
    """A session over named tensors."""

    #: int8 products round a whole tensor by one range, and float ones are cut by its shape.
    batch_invariant = False

    def __init__(self, session: Any, interface: TensorsInterface) -> None:
        self._session = session
        self._outputs = [one.name for one in interface.outputs]

    def run(self, inputs: Mapping[str, Array]) -> dict[str, Array]:
        """Outputs by name.

        Raises:
            EngineError: ONNX Runtime fails at these inputs; says at which node.
        """
        from onnxruntime.capi import onnxruntime_pybind11_state as ort

        try:
            found = self._session.run(self._outputs, dict(inputs))
        except (ort.Fail, ort.InvalidArgument, ort.RuntimeException, ort.NotImplemented) as error:
            lines = [line for line in str(error).splitlines() if line.strip()]
            raise EngineError(
                f"ONNX Runtime fails at these inputs: {(lines or ['?'])[0]}",
                where="onnxruntime engine",
            ) from error
        return dict(zip(self._outputs, found, strict=True))

    def close(self) -> None:
        """Free the session."""
        self._session = None


def load_tensors(
    folder: Path, interface: TensorsInterface, data: dict[str, Any], threads: int
) -> TensorsExecutable:
    """Load what `build_tensors` wrote.

    Raises:
        ArtifactError: A file is missing or damaged.
        UnavailableError: ONNX Runtime is missing or too old, or its provider does not start.
    """
    found = read_data(data)
    why = unusable(found.provider, found.release)
    if why:
        raise UnavailableError(why, where="onnxruntime engine")
    if found.saturates and saturates_pairs():
        _LOG.warning(
            "this CPU lacks VNNI: sums of products of 8 bits saturate in ONNX Runtime, and results "
            "differ from those that were judged where the artifact was compiled (compile it with "
            "--target x86-64-v3, or judge it here with optc verify --gates)"
        )
    session = open_model(folder / MODEL_FILE, found.provider, threads, exact=True)
    return OnnxTensors(session, interface)
