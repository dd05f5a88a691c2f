"""The passes from the ragged step to the dialect, in order."""

from __future__ import annotations

from dataclasses import dataclass

import onnx_ir as ir

from optc.backends.tensorrt.legalize.attention import LowerAttention
from optc.backends.tensorrt.legalize.block_fp4 import BlockFp4
from optc.backends.tensorrt.legalize.inline import Inline
from optc.backends.tensorrt.legalize.names import UniqueNames
from optc.backends.tensorrt.legalize.weight_only import WeightOnly
from optc.ir.forms.engine import EngineForm
from optc.ir.forms.kv_pools import KVPools
from optc.ir.forms.static_kv import StaticKV
from optc.ir.functions import DOMAIN, is_op
from optc.ir.pipeline import registry as pass_registry
from optc.ir.pipeline.base import Pass
from optc.ir.pipeline.phase import Effect
from optc.ir.pipeline.pipeline import Pipeline
from optc.ir.pipeline.record import PassRecord


@dataclass(frozen=True)
class Legalized:
    """The results of legalization, besides the model that it changed.

    Attributes:
        dtype: ``float16`` or ``bfloat16``: what is computed in, and the caches' type.
        portable: The same model for ONNX Runtime on a CPU. It is the model itself unless that
            computes in bfloat16 or NVFP4, which no kernel for the CPU has: then it computes in
            float32, with the same rounded weights, and NVFP4 is written out.
        runs: What each pass did.
        kv: The caches, in the type that is computed in.
    """

    dtype: str
    portable: ir.Model
    runs: tuple[PassRecord, ...]
    kv: KVPools


def legalize(model: ir.Model, slot_length: int) -> Legalized:
    """Rewrite a ragged step into TensorRT's dialect, in place.

    Args:
        model: The ragged step.
        slot_length: Tokens that a slot holds.

    Raises:
        UnsupportedError: Something has no form in the dialect.
    """
    dtype = compute_type(model)
    portable = model
    if dtype == "bfloat16" or _has(model, "BlockFp4MatMul"):
        portable = model.clone()
        Pipeline((*_steps(slot_length), _computing_in("float32"))).run(portable)
    native = (*_steps(slot_length, BlockFp4()), _computing_in(dtype))
    runs = tuple(Pipeline(native).run(model))
    return Legalized(dtype, portable, runs, EngineForm.of(model).kv.with_dtype(dtype))


def _steps(slot_length: int, *native: Pass) -> tuple[Pass, ...]:
    """Passes to the dialect, or without ``native`` to what ONNX Runtime has kernels for."""
    slots = pass_registry.leading_to(StaticKV)()
    return slots, WeightOnly(), *native, LowerAttention(slot_length), Inline(), UniqueNames()


def _computing_in(dtype: str) -> Pass:
    return pass_registry.having(Effect.SETS_COMPUTE_TYPE).from_options({"dtype": dtype})


def compute_type(model: ir.Model) -> str:
    """bfloat16 where the recipe's matmuls are, else float16."""
    return "bfloat16" if _has(model, "Bf16MatMul") else "float16"


def _has(model: ir.Model, op_type: str) -> bool:
    return any(is_op(node, op_type, domain=DOMAIN) for node in model.graph)
