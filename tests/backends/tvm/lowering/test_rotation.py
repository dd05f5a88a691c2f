"""Whoever rotates in blocks that no kernel has is refused, on every target."""

from __future__ import annotations

import onnx_ir as ir
import pytest

from optc.backends.tvm import BACKEND
from optc.backends.tvm_cuda import BACKEND as CUDA_BACKEND
from optc.system.hardware.target import parse_target
from tests.backends.tvm.engine_driver import INT8, SHAPE
from tests.support.families import model_after

#: Rows of 64 channels, heads of 16; the tied head rotates looked up rows back.
ROTATED = f"rotate-kv,rotate-activations,{INT8}"


@pytest.mark.parametrize(
    ("block", "rows", "heads"),
    [
        (16, "", ""),
        (64, "", "Hadamard blocks of 64 do not divide heads of 16 channels"),
        (4, *2 * ("no kernel rotates {} channels in Hadamard blocks of 4",)),
        (
            256,
            "no kernel rotates {} channels in Hadamard blocks of 256",
            "Hadamard blocks of 256 do not divide heads of {} channels",
        ),
    ],
)
def test_blocks_without_a_kernel_are_refused(block: int, rows: str, heads: str) -> None:
    found: dict[str, set[str]] = {}
    for node in model_after(ROTATED, SHAPE).graph:
        name = "block" if node.op_type == "BlockHadamard" else "hadamard"
        if name in node.attributes:
            node.attributes[name] = ir.AttrInt64(name, block)
            reasons = {
                backend.supports(node, parse_target(target)).reason
                for backend, target in ((BACKEND, "native"), (CUDA_BACKEND, "cuda:sm_90"))
            }
            found.setdefault(node.op_type, set()).update(reasons)
    quantizers = ("AddRMSNormQuantize", "GatedActivationQuantize", "RMSNormQuantize")
    wanted = {op_type: {rows.format(64)} for op_type in (*quantizers, "BlockHadamard")}
    assert found == wanted | {"RotaryPagedAttention": {heads.format(16)}}
