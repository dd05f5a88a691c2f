"""The passes from the ragged step to ONNX Runtime's operators, in order."""

from __future__ import annotations

import onnx_ir as ir

from optc.backends.onnxruntime.legalize.attention import GroupQueryAttention
from optc.backends.onnxruntime.legalize.fused import FuseOperators
from optc.backends.onnxruntime.legalize.matmuls import LowerMatmuls
from optc.backends.onnxruntime.legalize.pages import PagedAttentionOperator
from optc.errors import UnsupportedError
from optc.ir.forms.static_kv import StaticKV
from optc.ir.functions import DOMAIN, is_op
from optc.ir.graph import remove_unused
from optc.ir.pipeline import registry as pass_registry
from optc.ir.pipeline.base import Pass
from optc.ir.pipeline.phase import Effect
from optc.ir.pipeline.pipeline import Pipeline
from optc.ir.pipeline.record import PassRecord

#: Inputs of a step that an engine lacks where nothing reads them.
_OPTIONAL_INPUTS = ("positions", "write_indices")


def legalize_pages(model: ir.Model, positions: int) -> tuple[PassRecord, ...]:
    """Rewrite a ragged step into one over pages of float16, computed in float16, in place.

    Args:
        model: The ragged step.
        positions: Rows of rotary tables.

    Raises:
        UnsupportedError: PagedAttention does not take one of its attentions.
    """
    passes = (LowerMatmuls(), FuseOperators(), PagedAttentionOperator(positions), _in_float16())
    runs = Pipeline(passes).run(model)
    remove_unused(model)
    _drop_unread_inputs(model)
    return tuple(runs)


def legalize(model: ir.Model, positions: int, *, half: bool = False) -> tuple[PassRecord, ...]:
    """Rewrite a ragged step into what ONNX Runtime runs fast, in place.

    Args:
        model: The ragged step.
        positions: Rows of rotary tables.
        half: Compute in float16 with float16 slots, as CUDA's kernels want it.

    Raises:
        UnsupportedError: The model has what slots have no place for, or with ``half`` an attention
            that GroupQueryAttention does not take.
    """
    passes: list[Pass] = [
        pass_registry.leading_to(StaticKV)(),
        LowerMatmuls(),
        FuseOperators(),
        GroupQueryAttention(positions),
    ]
    if half:
        passes.append(_in_float16())
    runs = Pipeline(tuple(passes)).run(model)
    left = [n for n in model.graph if is_op(n, "SlotAttention", domain=DOMAIN)]
    if half and left:
        raise UnsupportedError(
            "GroupQueryAttention does not take this attention, and there is no other for CUDA",
            where=f"onnxruntime backend, node {left[0].name}",
            hint=next(run for run in runs if run.name == GroupQueryAttention.name).report.skipped[
                0
            ],
        )
    remove_unused(model)
    _drop_unread_inputs(model)
    return tuple(runs)


def _in_float16() -> Pass:
    return pass_registry.having(Effect.SETS_COMPUTE_TYPE).from_options({"dtype": "float16"})


def _drop_unread_inputs(model: ir.Model) -> None:
    for value in [v for v in model.graph.inputs if v.name in _OPTIONAL_INPUTS and not v.uses()]:
        model.graph.inputs.remove(value)
