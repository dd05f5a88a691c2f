"""Parts of a graph that can be computed in 8-bit integers: convolutions and what lies between."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field

import onnx_ir as ir

from optc.ir.functions import is_op
from optc.ir.graph import constant

#: Products with a constant weight and integer kernels.
PRODUCTS = ("Conv", "Gemm", "MatMul")
#: Operators whose output has the values of their input, or zeros: one scale does for both.
_MOVES = (
    *("MaxPool", "Reshape", "Flatten", "Transpose", "Squeeze", "Unsqueeze", "Slice", "Identity"),
    *("DepthToSpace", "SpaceToDepth", "Pad", "Resize", "Gather", "Expand", "Split"),
)
#: Operators with integer kernels, and a scale of their own at each value.
_ARITHMETIC = ("Add", "Concat", "AveragePool", "GlobalAveragePool", "LeakyRelu")


@dataclass
class Regions:
    """The parts of a graph that become integers.

    Attributes:
        products: Convolutions, and products with constant weights behind them.
        others: Operators between them.
        values: Values that are rounded; each has the scale of the one that it maps to.
        clips: For an operator whose result a Relu or Clip alone reads: that node, whose output is
            rounded in its place.
        skipped: Products that stay float, with the reason.
    """

    products: list[ir.Node] = field(default_factory=list)
    others: list[ir.Node] = field(default_factory=list)
    values: dict[ir.Value, ir.Value] = field(default_factory=dict)
    clips: dict[ir.Node, ir.Node] = field(default_factory=dict)
    skipped: list[tuple[ir.Node, str]] = field(default_factory=list)

    def scales(self) -> dict[ir.Value, list[ir.Value]]:
        """Values by the one whose scale they have."""
        found: dict[ir.Value, list[ir.Value]] = {}
        for value in self.values:
            found.setdefault(self.root(value), []).append(value)
        return found

    def root(self, value: ir.Value) -> ir.Value:
        """The value whose scale ``value`` has."""
        while self.values[value] is not value:
            value = self.values[value]
        return value

    def round(self, value: ir.Value, like: ir.Value | None = None) -> None:
        """Round ``value``, with the scale of ``like`` if there is one."""
        self.values.setdefault(value, value if like is None else like)


def find_regions(
    graph: ir.Graph, *, first: bool, sums: bool, left: Collection[str] = ()
) -> Regions:
    """The convolutions of ``graph``, and what can be computed in integers behind them.

    Args:
        graph: Its main nodes count.
        first: Convolutions with no other before them, too.
        sums: Sums of two values, too.
        left: Names of results of products that stay float.
    """
    found = Regions()
    behind: set[ir.Value] = set()  # what a convolution was computed for
    for node in graph:
        later = any(value in behind for value in node.inputs)
        if later or is_op(node, "Conv"):
            behind.update(node.outputs)
        if is_op(node, *PRODUCTS) and str(node.outputs[0].name) in left:
            found.skipped.append((node, "it loses most of all when it is rounded"))
        elif is_op(node, "Conv") and not (first or later):
            found.skipped.append((node, "no convolution comes before it"))
        elif is_op(node, "Add") and not sums:
            continue
        elif is_op(node, "Conv"):  # others stay float unless their input is rounded already
            _add_product(found, node, graph)
        elif not node.inputs or node.inputs[0] not in found.values:
            continue
        elif is_op(node, "Gemm", "MatMul"):
            _add_product(found, node, graph)
        elif is_op(node, *_MOVES) and _moves(node):
            found.others.append(node)
            found.round(node.outputs[0], node.inputs[0])
        elif is_op(node, *_ARITHMETIC) and all(v in found.values for v in node.inputs):
            found.others.append(node)
            found.round(_result(found, node, graph))
    _drop_ends(found)
    return found


def _drop_ends(found: Regions) -> None:
    """Leave operators float that no product reads behind: what they give are a model's outputs, or
    what floats are computed of, and 8 bits would be its last word."""
    members = {*found.products, *found.others}
    for node in reversed(tuple(found.others)):
        clip = found.clips.get(node)
        value = (clip or node).outputs[0]
        if not any(use.node in members for use in value.uses()):
            members.remove(node)
            found.others.remove(node)
            del found.values[value]
            found.clips.pop(node, None)


def _add_product(found: Regions, node: ir.Node, graph: ir.Graph) -> None:
    reason = _reason_against(node)
    x = node.inputs[0]
    if reason or x is None:
        found.skipped.append((node, reason))
        return
    found.products.append(node)
    found.round(x)
    if is_op(node, "Conv"):  # the result of others stays float: the last layer's, above all
        found.round(_result(found, node, graph))


def _result(found: Regions, node: ir.Node, graph: ir.Graph) -> ir.Value:
    """The value to round: behind a Relu or Clip where that alone reads the result."""
    value = node.outputs[0]
    uses = tuple(value.uses())
    if len(uses) == 1 and value not in graph.outputs:
        reader = uses[0].node
        if reader.graph is graph and _keeps_zero(reader):
            found.clips[node] = reader
            return reader.outputs[0]
    return value


def _keeps_zero(node: ir.Node) -> bool:
    """A Relu, or a Clip between constants around 0: rounding within its range does its work."""
    if is_op(node, "Relu"):
        return True
    if not is_op(node, "Clip") or not all(_is_scalar(v) for v in node.inputs[1:]):
        return False
    ends = [constant(value) for value in node.inputs[1:]]
    low, high = (*(None if e is None else float(e.numpy().item()) for e in ends), None, None)[:2]
    return (low is None or low <= 0) and (high is None or high >= 0)


def _is_scalar(value: ir.Value | None) -> bool:
    tensor = constant(value)
    return value is None or (tensor is not None and tensor.size == 1)


def _moves(node: ir.Node) -> bool:
    """True where an operator that can do more only moves values."""
    stated = {name: attribute.value for name, attribute in node.attributes.items()}
    if is_op(node, "MaxPool", "Split"):
        return len(node.outputs) == 1
    if is_op(node, "Resize"):
        return stated.get("mode", "nearest") == "nearest"
    if is_op(node, "Pad"):
        value = node.inputs[2] if len(node.inputs) > 2 else None
        zero = constant(value)
        same = stated.get("mode", "constant") != "constant" or value is None
        return same or (zero is not None and not zero.numpy().any())
    return True


def _reason_against(node: ir.Node) -> str:
    """Empty if a product has a constant float weight, and nothing that integer kernels lack."""
    weight = constant(node.inputs[1])
    if weight is None or weight.dtype != ir.DataType.FLOAT:
        return "its weight is no float constant"
    bias = node.inputs[2] if len(node.inputs) > 2 else None
    if bias is not None and constant(bias) is None:
        return "its bias is not constant"
    stated = {name: attribute.value for name, attribute in node.attributes.items()}
    if is_op(node, "Conv"):
        return "" if len(weight.shape) >= 3 else "its weight has no window"
    if len(weight.shape) != 2:
        return "its weight is no matrix"
    plain = {"alpha": 1.0, "beta": 1.0, "transA": 0}
    odd = (name for name, usual in plain.items() if stated.get(name, usual) != usual)
    return next((f"{name}={stated[name]}" for name in odd), "")
