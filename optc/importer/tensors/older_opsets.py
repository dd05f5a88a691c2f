"""ONNX models of older operator sets are converted, as far as ONNX's own converter can, and where
it changes what is computed, that is set right."""

from __future__ import annotations

from collections.abc import Iterator

import onnx
import onnx_ir as ir
from onnx_ir.passes import common as cleaning

from optc.errors import UnsupportedError

#: The standard operators' version that passes know.
OPSET = 18
#: Before this opset Scan has an axis of batches.
_SCAN_OF_NOW = 9
#: From this version of the format on, which ONNX's converter heeds.
_WEIGHTS_ARE_NO_INPUTS = 4
#: A protocol buffer holds no more.
MOST_BYTES = (1 << 31) - 1
_STANDARD = ("", "ai.onnx")
_LATER = f"export it with opset {OPSET} or later"
#: From this opset on Hardmax is along one axis, and before it over that and all behind it, which
#: ONNX's converter leaves as it was.
_ONE_AXIS = 13
#: What resizes; from opset 11 on a node says where pixels lie, and before it they lie so.
_RESIZES, _SAYS_WHERE = ("Upsample", "Resize"), 11
_WHERE = ("coordinate_transformation_mode", "asymmetric")


def converted(model: ir.Model, name: str) -> ir.Model:
    """``model`` in opset 18 or later.

    Raises:
        UnsupportedError: ONNX's converter does not take it.
    """
    version = next((model.opset_imports[d] for d in _STANDARD if d in model.opset_imports), None)
    if version is None or version >= OPSET:
        return model
    if version < _SCAN_OF_NOW and any(node.op_type == "Scan" for node in model.graph):
        raise UnsupportedError(
            f"it has a Scan of opset {version}, which has another axis than that of opset "
            f"{_SCAN_OF_NOW}, and ONNX's converter does not turn it",
            where=name,
            hint=_LATER,
        )
    weights = (value.const_value for value in model.graph.initializers.values())
    if sum(one.nbytes for one in weights if one is not None) > MOST_BYTES:
        raise UnsupportedError(
            f"it is of opset {version}, and too large for ONNX's converter", where=name, hint=_LATER
        )
    if model.functions:
        cleaning.InlinePass()(model)  # the converter forgets them
    nearest = _nearest(model) if version < _SAYS_WHERE else {}
    try:
        proto = ir.to_proto(model)
        proto.ir_version = max(proto.ir_version, _WEIGHTS_ARE_NO_INPUTS)
        proto = onnx.version_converter.convert_version(proto, OPSET)
    except Exception as error:  # the converter raises RuntimeErrors of its C++ part
        raise UnsupportedError(
            f"it is of opset {version}, which ONNX does not convert: {str(error).splitlines()[0]}",
            where=name,
            hint=_LATER,
        ) from error
    found = ir.from_proto(proto)
    if version < _ONE_AXIS:
        _largest_of_many_axes(found)
    for node in _nodes(found):
        mode = nearest.get(node.outputs[0].name)
        if node.op_type == "Resize" and mode is not None:
            for key, value in (_WHERE, ("nearest_mode", mode)):
                node.attributes[key] = ir.AttrString(key, value)
    return found


def _largest_of_many_axes(model: ir.Model) -> None:
    """Keep what Hardmax computed: over a matrix whose rows are the axes from its own on."""
    for node in [one for one in _nodes(model) if one.op_type == "Hardmax" and not one.domain]:
        x, result = node.inputs[0], node.outputs[0]
        axis = node.attributes.get("axis")
        flat = ir.node("Flatten", [x], {"axis": 1 if axis is None else axis.as_int()})
        shape = ir.node("Shape", [x])
        largest = ir.node("Hardmax", [flat.outputs[0]], {"axis": -1})
        back = ir.node("Reshape", [largest.outputs[0], shape.outputs[0]])
        made = [flat, shape, largest, back]
        ir.convenience.replace_nodes_and_values(
            node.graph or model.graph, node, [node], made, [result], [back.outputs[0]]
        )


def _nodes(model: ir.Model) -> Iterator[ir.Node]:
    yield from ir.traversal.RecursiveGraphIterator(model.graph)


def _nearest(model: ir.Model) -> dict[str | None, str]:
    """By the name of what is resized, the pixel that is nearest: that before, or that behind where
    there are fewer."""
    found = {}
    for node in _nodes(model):
        if node.op_type in _RESIZES:
            scales = _scales(node)
            smaller = bool(scales) and min(scales) < 1 and max(scales) <= 1
            found[node.outputs[0].name] = "ceil" if smaller else "floor"
    return found


def _scales(node: ir.Node) -> list[float]:
    """Of the axes; empty where they are computed."""
    if "scales" in node.attributes:
        return list(node.attributes["scales"].as_floats())
    value = node.inputs[1] if len(node.inputs) > 1 else None
    tensor = None if value is None else ir.convenience.get_const_tensor(value)
    return [] if tensor is None else tensor.numpy().ravel().tolist()
