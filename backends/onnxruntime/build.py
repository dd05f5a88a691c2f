"""Building an engine: legalize the ragged step, write model and weights."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path

import onnx_ir as ir
from msgspec import structs, to_builtins

from optc.artifact.spec_digest import spec_digest
from optc.backend import BuildOptions, EngineBuild, slot_engine_spec
from optc.backends.onnxruntime.engine_data import (
    MODEL_FILE,
    SPEC_METADATA,
    WEIGHTS_FILE,
    EngineData,
)
from optc.backends.onnxruntime.legalize import legalize, legalize_pages
from optc.backends.onnxruntime.legalize.pages import is_paged
from optc.backends.onnxruntime.packages import CPU_PACKAGE, GPU_PACKAGE, OLDEST
from optc.backends.onnxruntime.providers import CPU, CUDA
from optc.backends.onnxruntime.weights import store_weights
from optc.ir.forms.engine import EngineForm
from optc.runtime.executable.executable import LayerKV, StepInterface
from optc.system.hardware.target import Target

#: Tokens of a block of PagedAttention, at least: any power of two from 16 on is taken
#: (contrib_ops/cuda/bert/paged_attention_helper.h), FlashAttention's kernels want a whole tile.
PAGE_MULTIPLE = 256


def build_engine(
    model: ir.Model, target: Target, workdir: Path, options: BuildOptions
) -> EngineBuild:
    """Build ``model`` into ``workdir`` (see `optc.backend.StepBackend.build`).

    Raises:
        UnsupportedError: The model has what slots have no place for.
    """
    started = time.perf_counter()
    cuda = target.kind == "cuda"
    narrow = any(node.op_type.startswith("Bf16") for node in model.graph)
    paged = cuda and any(map(is_paged, model.graph))
    if paged:
        runs = legalize_pages(model, options.max_context + 1)
    else:
        runs = legalize(model, options.max_context + 1, half=cuda)
    legalized_at = time.perf_counter()
    size = store_weights(model, workdir / WEIGHTS_FILE)
    spec = (paged_spec if paged else engine_spec)(model, options)
    model.metadata_props[SPEC_METADATA] = spec_digest(spec).hex()
    ir.save(model, workdir / MODEL_FILE)
    ended = time.perf_counter()
    return EngineBuild(
        files=(MODEL_FILE, WEIGHTS_FILE),
        spec=spec,
        requires={GPU_PACKAGE if cuda else CPU_PACKAGE: f">={OLDEST}"},
        backend_data=to_builtins(EngineData(CUDA if cuda else CPU, OLDEST)),
        report={
            "legalize": [run.to_json() for run in runs],
            "legalize_seconds": legalized_at - started,
            "write_seconds": ended - legalized_at,
            "build_seconds": ended - started,
            "weight_bytes": size,
        },
        warnings=() if cuda else _warnings(narrow),
        computes_in="float16" if cuda else "float32",
        weight_bytes=size,
        # float16 operators but PagedAttention have CPU kernels too: a machine without a GPU can
        # measure the gates
        lowered_onnx=workdir / MODEL_FILE if cuda and not paged else None,
    )


def _warnings(narrow: bool) -> tuple[str, ...]:
    if not narrow:
        return ()
    return (
        "ONNX Runtime has no bfloat16 kernels for the CPU: weights are stored in bfloat16 and take "
        "twice the memory, as float32, once they are loaded",
    )


def engine_spec(model: ir.Model, options: BuildOptions) -> StepInterface:
    """Limits and KV of the engine that a legalized model gives."""
    layers = []
    inputs = {str(value.name): value for value in model.graph.inputs}
    count = sum(name.startswith("past_k.") for name in inputs)
    for index in range(count):
        k, v = (_dims(inputs[f"past_{kind}.{index}"]) for kind in "kv")
        half = inputs[f"past_k.{index}"].dtype is ir.DataType.FLOAT16
        layers.append(LayerKV(0, k[0], k[1], v[1], "float16" if half else "float32"))
    return slot_engine_spec(model, options, layers)


def paged_spec(model: ir.Model, options: BuildOptions) -> StepInterface:
    """Limits and KV of an engine over pages: the groups and windows of the ragged step."""
    kv = EngineForm.of(model).kv
    slots = slot_engine_spec(model, options, [replace(one, group=0) for one in kv.layers])
    return structs.replace(
        slots,
        block_multiple=PAGE_MULTIPLE,
        groups=kv.groups,
        layers=kv.layers,
        kv_layout="paged",
    )


def _dims(value: ir.Value) -> tuple[int, int]:
    """KV heads and width of a slot [B, heads, tokens, width]."""
    if value.shape is None or not all(isinstance(value.shape[i], int) for i in (1, 3)):
        raise ValueError(f"{value.name} has no static width")
    return int(value.shape[1]), int(value.shape[3])  # type: ignore[arg-type]
