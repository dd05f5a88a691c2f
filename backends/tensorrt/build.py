"""Building an engine: legalize, check, build in a process of its own, read the layer table."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import onnx
import onnx_ir as ir
from msgspec import to_builtins

from optc.backend import BuildOptions, EngineBuild, slot_engine_spec
from optc.backends.tensorrt.build_job import BuildJob
from optc.backends.tensorrt.builder import run_builder
from optc.backends.tensorrt.dialect import check_model
from optc.backends.tensorrt.engine_data import ENGINE_FILE, EngineData
from optc.backends.tensorrt.layers import parse_table
from optc.backends.tensorrt.legalize import Legalized, legalize
from optc.backends.tensorrt.limits import Limits, slot_length
from optc.backends.tensorrt.profiles import limits_of, profiles_for
from optc.backends.tensorrt.provider import RTX
from optc.backends.tensorrt.report import Expected, describe, findings
from optc.backends.tensorrt.sparsity import pruned_weights
from optc.backends.tensorrt.targets import architectures_of, package_for
from optc.backends.tensorrt.tensor_list import TENSORS_FILE, write_tensors
from optc.errors import OptcError, UnavailableError
from optc.ir.graph import is_constant
from optc.runtime.executable.executable import StepInterface
from optc.system.hardware.target import Target
from optc.system.scratch import Scratch

TABLE_FILE = "layers.txt"
#: Of engines of TensorRT, whose builder prints no such table, and whose kernels have other names.
NOT_DESCRIBED: dict[str, Any] = {"profiles": [], "signature": ""}
#: The model as the engine computes it, beside its weights.
ONNX_FILE = "model.onnx"
BUILDER_FILE = "builder.onnx"
WEIGHTS_FILE = "model.onnx.data"
#: Metadata of the model: the shapes of its caches (docs/normal-form.md).


def build_engine(
    model: ir.Model, target: Target, workdir: Path, options: BuildOptions
) -> EngineBuild:
    """Build ``model`` into ``workdir`` (see `optc.backend.StepBackend.build`).

    Raises:
        UnsupportedError: The model has no form that TensorRT builds as it is meant.
        UnavailableError: No TensorRT, no kernels for the GPUs, or the builder crashed.
    """
    started = time.perf_counter()
    length = slot_length(options.max_context)
    legalized = legalize(model, length)
    architectures = architectures_of(target)
    check_model(model, architectures)
    limits = limits_of(options)
    with _scratch(options) as folder:
        lowered_at = time.perf_counter()
        graph = save(model, folder)
        portable = graph
        if options.scratch is not None and legalized.portable is not model:
            (folder / "portable").mkdir()
            portable = save(legalized.portable, folder / "portable")
        write_tensors(graph, workdir)
        saved_at = time.perf_counter()
        sparse = pruned_weights(model)
        request = BuildJob(
            model=str(allow_decomposition(graph)),
            engine=str(workdir / ENGINE_FILE),
            table=str(folder / TABLE_FILE),
            architectures=architectures,
            profiles=profiles_for(model.graph.inputs, limits),
            package=package_for(architectures),
            sparse=bool(sparse),
        )
        with _removing(workdir / TENSORS_FILE):
            built = run_builder(request, max_bytes=options.max_ram_bytes)
        described: dict[str, Any] = NOT_DESCRIBED
        if request.package == RTX:
            table = Path(request.table).read_text("utf-8")
            described = _describe(table, limits, _expected(model))
    report = _report(legalized, built, described) | {
        "sparse_weights": len(sparse),
        "legalize_seconds": lowered_at - started,
        "save_seconds": saved_at - lowered_at,
        "build_seconds": time.perf_counter() - started,
    }
    return EngineBuild(
        files=(ENGINE_FILE, TENSORS_FILE),
        spec=engine_spec(model, legalized, options),
        requires={built["package"]: built["version"]},
        backend_data=_backend_data(model, legalized, built, limits, length, described),
        report=report,
        warnings=findings(described),
        weight_bytes=_weight_bytes(model),
        lowered_onnx=portable if options.scratch is not None else None,
        computes_in=legalized.dtype,
    )


@contextmanager
def _scratch(options: BuildOptions) -> Iterator[Path]:
    """The folder for what does not come into the artifact."""
    if options.scratch is not None:
        yield options.scratch
        return
    with Scratch("tensorrt") as folder:
        yield Path(folder)


@contextmanager
def _removing(path: Path) -> Iterator[None]:
    """A file does not outlive a failure."""
    try:
        yield
    except OptcError:
        path.unlink(missing_ok=True)
        raise


def save(model: ir.Model, folder: Path) -> Path:
    """Write the model and its weights; weights are read and written one at a time."""
    path = folder / ONNX_FILE
    ir.save(model, path, external_data=WEIGHTS_FILE)
    return path


def allow_decomposition(path: Path) -> Path:
    """A copy of the graph, over the same weights, whose attentions TensorRT may also take apart.

    Without its attribute a build fails where one kernel does not suit: that for a single row takes
    no odd number of heads, while the other one does. No other reader of ONNX knows the attribute.
    """
    proto = onnx.load(path, load_external_data=False)
    for node in proto.graph.node:
        if node.op_type == "Attention":
            node.attribute.append(onnx.helper.make_attribute("TRT_decomposable", 1))
    copy = path.with_name(BUILDER_FILE)
    onnx.save(proto, copy)
    return copy


def _expected(model: ir.Model) -> Expected:
    graph = model.graph
    return Expected(
        attentions=tuple(str(n.name) for n in graph if n.op_type == "Attention"),
        matmuls=tuple(str(n.name) for n in graph if n.op_type == "MatMul" and _has_weight(n)),
        caches=tuple(str(value.name) for value in graph.outputs[1:]),
    )


def _has_weight(node: ir.Node) -> bool:
    weight = node.inputs[1]
    producer = None if weight is None else weight.producer()
    return is_constant(weight) or (producer is not None and producer.op_type == "DequantizeLinear")


def _describe(table: str, limits: Sequence[Limits], expected: Expected) -> dict[str, Any]:
    try:
        layers = parse_table(table)
    except ValueError as error:
        raise UnavailableError(
            f"the builder's table of layers is not understood: {error}",
            where="tensorrt backend",
            hint="this release of TensorRT prints it in another form; please report it",
        ) from error
    return describe(layers, [limit.name for limit in limits], expected)


def _report(
    legalized: Legalized, built: dict[str, Any], described: dict[str, Any]
) -> dict[str, Any]:
    return {
        "legalize": [run.to_json() for run in legalized.runs],
        "compute_type": legalized.dtype,
        "builder": built,
        "engine": described,
    }


def engine_spec(model: ir.Model, legalized: Legalized, options: BuildOptions) -> StepInterface:
    """Limits and KV of the engine that a legalized model gives."""
    return slot_engine_spec(model, options, legalized.kv.layers)


def _backend_data(
    model: ir.Model,
    legalized: Legalized,
    built: dict[str, Any],
    limits: Sequence[Limits],
    length: int,
    described: dict[str, Any],
) -> dict[str, Any]:
    caches = len(model.graph.outputs) - 1
    inputs = [str(value.name) for value in model.graph.inputs]
    outputs = (str(value.name) for value in model.graph.outputs[1:])
    data = EngineData(
        package=built["package"],
        version=built["version"],
        slot_length=length,
        profiles=tuple(limits),
        inputs=tuple(inputs),
        aliases=dict(zip(outputs, inputs[-caches:], strict=True)),
        dtype=legalized.dtype,
        layers=described["signature"],
    )
    plain: dict[str, Any] = to_builtins(data)
    return plain


def _weight_bytes(model: ir.Model) -> int:
    tensors = (value.const_value for value in model.graph.initializers.values())
    return sum(tensor.nbytes for tensor in tensors if tensor is not None)
