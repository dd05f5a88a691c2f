"""The passes from the ragged step to the dialect, in order."""

from __future__ import annotations

from dataclasses import dataclass

import onnx_ir as ir

from optc import registry
from optc.backends.tensorrt.legalize.attention import LowerAttention
from optc.backends.tensorrt.legalize.inline import Inline
from optc.backends.tensorrt.legalize.names import UniqueNames
from optc.backends.tensorrt.legalize.weight_only import WeightOnly
from optc.ir.functions import DOMAIN, is_op
from optc.pipeline.base import Pass
from optc.pipeline.pipeline import PassRecord, Pipeline


@dataclass(frozen=True)
class Legalized:
    """What legalization gave, besides the model that it changed.

    Attributes:
        dtype: ``float16`` or ``bfloat16``: what is computed in, and the caches' type.
        portable: The same model for ONNX Runtime on a CPU; the model itself unless it computes in
            bfloat16, which is float32 there, with the same rounded weights.
        runs: What each pass did.
    """

    dtype: str
    portable: ir.Model
    runs: tuple[PassRecord, ...]


def legalize(model: ir.Model, slot_length: int) -> Legalized:
    """Rewrite a ragged step into TensorRT's dialect, in place.

    Args:
        model: The ragged step.
        slot_length: Tokens that a slot holds.

    Raises:
        UnsupportedError: Something has no form in the dialect.
    """
    dtype = compute_type(model)
    lowering = Pipeline(
        (
            registry.passes()["kv-slots"](),
            WeightOnly(),
            LowerAttention(slot_length),
            Inline(),
            UniqueNames(),
            _computing_in(dtype),
        )
    )
    kept: list[ir.Model] = []

    def keep(record: PassRecord, current: ir.Model) -> None:
        if record.name == UniqueNames.name and dtype == "bfloat16":
            kept.append(current.clone())

    runs = lowering.run(model, [keep])
    for portable in kept:
        _computing_in("float32").run(portable)
    return Legalized(dtype, kept[0] if kept else model, tuple(runs))


def _computing_in(dtype: str) -> Pass:
    return registry.passes()["compute-type"].from_options({"dtype": dtype})


def compute_type(model: ir.Model) -> str:
    """bfloat16 where the recipe's matmuls are, else float16."""
    bf16 = any(is_op(node, "Bf16MatMul", domain=DOMAIN) for node in model.graph)
    return "bfloat16" if bf16 else "float16"
