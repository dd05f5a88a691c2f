"""Graphs as an exporter leaves them, from ONNX text, and what a pass makes of them."""

from __future__ import annotations

import re
from collections.abc import Mapping

import numpy as np
import onnx
import onnx_ir as ir
import onnxruntime

from optc.ir.pipeline.base import Pass, PassReport
from optc.ir.weights import LazyWeight
from tests.support.ir_text import Array, nodes_text
from tests.support.ragged import run

HEADER = '<ir_version: 10, opset_import: ["" : 23, "optc" : 1]>'
_KINDS = {"f": "float", "i": "int64", "b": "bool"}


def exported(
    signature: str,
    nodes: str,
    weights: Mapping[str, Array] | None = None,
    constants: Mapping[str, Array] | None = None,
) -> ir.Model:
    """A model with inferred shapes; ``weights`` become lazy, ``constants`` plain initializers.

    ``signature`` is ``(float[B,S,8] x) => (float[B,S,8] y)``.
    """
    arrays = {**(weights or {}), **(constants or {})}
    declared = "".join(
        f", {_KINDS[a.dtype.kind]}[{','.join(map(str, a.shape))}] {name}"
        for name, a in arrays.items()
    )
    text = f"{HEADER} g {signature.replace(') =>', declared + ') =>')} {{ {nodes} }}"
    proto = onnx.parser.parse_model(text)
    for name, array in (constants or {}).items():
        proto.graph.initializer.append(onnx.numpy_helper.from_array(array, name))
        proto.graph.input.remove(next(v for v in proto.graph.input if v.name == name))
    model = ir.from_proto(onnx.shape_inference.infer_shapes(proto, data_prop=True))
    for name, array in (weights or {}).items():
        value = next(v for v in model.graph.inputs if v.name == name)
        value.const_value = lazy(name, array)
        model.graph.inputs.remove(value)
        model.graph.register_initializer(value)
    return model


def lazy(name: str, array: Array) -> LazyWeight:
    """A weight as the importer attaches it."""
    return LazyWeight(lambda a, b: array[a:b], array.shape, ir.DataType.FLOAT, name)


def after(model: ir.Model, *passes: Pass) -> tuple[str, PassReport]:
    """The nodes after ``passes``, values numbered in order of first use, and the last report."""
    report = PassReport()
    for each in passes:
        report = each.run(model)
    for index, value in enumerate(v for node in model.graph for v in node.outputs):
        if not value.is_graph_output():
            value.name = f"t{index}"
    shapes = [v for name, v in model.graph.initializers.items() if name.startswith("shape_")]
    for index, value in enumerate(shapes):
        sizes = "_".join(str(x) for x in value.const_value.numpy()) if value.const_value else ""
        value.name = f"to_{sizes.replace('-1', 'rest')}.k{index}"
    return re.sub(r"\.k\d+", "", nodes_text(model)), report


def evaluate(model: ir.Model, inputs: Mapping[str, Array]) -> Array:
    """The first output in ONNX Runtime."""
    session = onnxruntime.InferenceSession(
        ir.to_proto(model).SerializeToString(), providers=["CPUExecutionProvider"]
    )
    return session.run(None, dict(inputs))[0]


def unchanged(model: ir.Model, inputs: Mapping[str, Array], *passes: Pass) -> float:
    """Largest relative change that ``passes`` make to the output on ``inputs``."""
    before = evaluate(model, inputs)
    for each in passes:
        each.run(model)
    return float(np.abs(evaluate(model, inputs) - before).max() / np.abs(before).max())


def wrong_shapes(model: ir.Model, inputs: Mapping[str, Array]) -> list[str]:
    """Values that do not have the shape that the graph states: another rank or size, or
    different sizes of one name. All of them are computed."""
    proto = ir.to_proto(model)
    stated = {
        str(value.name): value.shape
        for node in model.graph
        for value in node.outputs
        if value.name and value.shape is not None
    }
    known = {value.name for value in proto.graph.output}
    proto.graph.output.extend(
        onnx.ValueInfoProto(name=name) for name in stated if name not in known
    )
    names = [value.name for value in proto.graph.output]
    found = dict(zip(names, run(ir.from_proto(proto), inputs), strict=True))
    sizes: dict[str, int] = {}
    for value in model.graph.inputs:
        if value.name in inputs and value.shape is not None:
            sizes |= _named(value.shape, inputs[value.name].shape)
    wrong = []
    for name, shape in stated.items():
        real = found[name].shape
        for dim, size in _named(shape, real).items():
            sizes.setdefault(dim, size)
        wanted = [d if isinstance(d, int) else sizes.get(str(d.value)) for d in shape]
        held = len(wanted) == len(real) and all(
            one in (None, size) for one, size in zip(wanted, real, strict=True)
        )
        if not held:
            wrong.append(f"{name} states {shape} and is {list(real)}")
    return wrong


def _named(shape: ir.Shape, real: tuple[int, ...]) -> dict[str, int]:
    """Sizes of dimensions by name."""
    return {
        str(dim.value): size
        for dim, size in zip(shape, real, strict=False)
        if isinstance(dim, ir.SymbolicDim) and dim.value is not None
    }
