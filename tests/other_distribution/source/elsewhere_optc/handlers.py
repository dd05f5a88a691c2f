"""The operator in TVM's engines, found by the entry point `optc.tvm_handlers`."""

from __future__ import annotations

import onnx_ir as ir

from optc.backends.tvm.lowering.walk import Handler, Lowering, rows_of, width_of


def _times(lowering: Lowering, node: ir.Node) -> None:
    x = lowering.tensor(node.inputs[0])
    width = width_of(x)
    factor = node.attributes.get_float("factor", 1.0)
    config = {"operation": "scale", "width": width, "constant": factor}
    shape = [("float32", (rows_of(x), width))]
    lowering.tensors[node.outputs[0]] = lowering.call("elementwise", config, [x], shape)[0]


HANDLERS = {("optc", "ElsewhereTimes"): Handler(_times)}
