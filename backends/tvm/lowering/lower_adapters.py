"""Lowering of LoRA adapters: two kernels behind a linear layer, pools that the runtime fills."""

from __future__ import annotations

from typing import Any

import onnx_ir as ir

from optc.backends.tvm.lowering.walk import Handler, Lowering, Refused, rows_of, width_of
from optc.backends.tvm.program import Tensor
from optc.ir.functions.adapters import part_starts
from optc.runtime.executable.adapter_spec import AdapterSpec

#: The slot of every row, and of every row with logits.
STEP_INPUTS = (Tensor("adapters", "int32", ("T",)), Tensor("logit_adapters", "int32", ("R",)))


def adapter_pools(spec: AdapterSpec | None) -> list[Tensor]:
    """A [M, k, parts * rank] and B [M, rank, n] of every module; M is the symbol of ``max``."""
    if spec is None:
        return []
    return [
        tensor
        for index, module in enumerate(spec.modules)
        for tensor in (
            Tensor(f"adapter_a.{index}", "float32", ("M", module.k, len(module.parts) * spec.rank)),
            Tensor(f"adapter_b.{index}", "float32", ("M", spec.rank, module.n)),
        )
    ]


def _adapter_matmul(lowering: Lowering, node: ir.Node) -> None:
    """y, x (or q and s), adapters, a_pool, b_pool."""
    quantized = node.op_type.startswith("Quantized")
    y, *operands, adapters, a, b = (lowering.tensor(value) for value in node.inputs)
    rows, n = rows_of(y), width_of(y)
    rank = node.attributes.get_int("rank", 0)
    starts = part_starts(node.attributes.get_string("parts", "0"))
    k = a.shape[1]
    if not isinstance(k, int) or a.shape[2] != rank * len(starts) or b.shape[2] != n:
        raise Refused(f"pools {list(a.shape)} and {list(b.shape)} do not fit its parts")
    shrink: dict[str, Any] = {"k": k, "width": rank * len(starts), "quantized": quantized}
    if quantized and operands[0].name in lowering.pairs:
        shrink["bits"] = 16
    outputs = [("float32", (rows, rank * len(starts)))]
    (h,) = lowering.call("adapter_shrink", shrink, [*operands, adapters, a], outputs)
    grow: dict[str, Any] = {"n": n, "rank": rank, "starts": tuple(starts)}
    (out,) = lowering.call("adapter_grow", grow, [y, h, adapters, b], [("float32", (rows, n))])
    lowering.tensors[node.outputs[0]] = out


HANDLERS = {
    ("optc", "AdapterMatMul"): Handler(_adapter_matmul),
    ("optc", "QuantizedAdapterMatMul"): Handler(_adapter_matmul),
}
