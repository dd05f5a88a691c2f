"""Runs a pass over a sample of a model: which nodes it writes, before there is a model."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import onnx_ir as ir

from optc.ir.pipeline.base import Pass
from optc.ir.weights import as_lazy
from optc.passes.numerics.statistics import INPUT_HESSIAN, INPUT_RANGE
from optc.proof.reference.calibration import calibration_of

#: Every group and block size divides it.
_WIDTH = 128


def sample_nodes(one: Pass) -> Sequence[ir.Node]:
    """The nodes of an embedding, a linear layer and a head behind ``one``."""
    model = _model()
    one.run(model)
    return tuple(model.graph)


def _model() -> ir.Model:
    tokens = _value("tokens", ir.DataType.INT64, ["R"])
    graph = ir.Graph([tokens], [], nodes=[], opset_imports={"": 23, "optc": 1}, name="sample")
    model = ir.Model(graph, ir_version=10)
    value = tokens
    for index, name in enumerate(("embedding", "linear", "head")):
        rows = np.ones((_WIDTH, _WIDTH), np.float32)
        lazy = as_lazy(ir.tensor(rows, name=name))
        weight = _value(name, ir.DataType.FLOAT, [_WIDTH, _WIDTH])
        weight.const_value = lazy.transpose() if index else lazy
        graph.register_initializer(weight)
        inputs = [value, weight] if index else [weight, value]
        node = ir.Node("", "MatMul" if index else "Gather", inputs, name=f"{name}.node")
        value = node.outputs[0]
        value.name, value.type = f"{name}.out", ir.TensorType(ir.DataType.FLOAT)
        value.shape = ir.Shape(["R", _WIDTH])
        graph.append(node)
    graph.outputs.append(value)
    # as if calibrated
    store, names = calibration_of(model), list(graph.initializers)
    store.put(names, INPUT_RANGE, np.array(1.0))
    store.put(names, INPUT_HESSIAN, np.eye(_WIDTH))
    return model


def _value(name: str, dtype: ir.DataType, shape: list[int | str]) -> ir.Value:
    return ir.Value(name=name, type=ir.TensorType(dtype), shape=ir.Shape(shape))
