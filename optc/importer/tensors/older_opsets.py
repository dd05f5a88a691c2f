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
    for node in _nodes(found):
        mode = nearest.get(node.outputs[0].name)
        if node.op_type == "Resize" and mode is not None:
            for key, value in (_WHERE, ("nearest_mode", mode)):
                node.attributes[key] = ir.AttrString(key, value)
    return found


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
