"""Float weights in the place of what a pass made of them, one at a time."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import onnx_ir as ir

from optc.ir.emit import Emitter
from optc.ir.functions import is_op, operand
from optc.ir.graph import add_initializer, replace_node
from optc.ir.linear import find_linear
from optc.ir.sources import Source, sources_of
from optc.ir.weights import Array, LazyWeight
from optc.proof.gates.bisect.node_errors import LocalRun, NodeError

#: Decibels that a restored weight has to gain to be the cause: half of the noise.
GAIN_DB = 3.0
_DOMAIN = "optc"


@dataclass(frozen=True)
class Cause:
    """The cause of a value's error.

    Attributes:
        kind: ``weight``, ``activation`` (its rounding), or ``node``: what the node computes.
        tensor: Name of the weight as the checkpoint has it, or of the value.
        node: The node that reads the weight, or gives the value.
        restored_db: SQNR of the value with the weight restored; None of other causes.
        output: The value that the node gives, by which `restored` finds it.
    """

    kind: str
    tensor: str
    node: str
    restored_db: float | None
    output: str


@dataclass(frozen=True)
class _Weighted:
    """A node that multiplies an activation by a weight in whatever type."""

    node: ir.Node
    x: ir.Value
    x_scale: ir.Value | None
    weight: ir.Value
    bias: ir.Value | None

    @property
    def output(self) -> str:
        return str(self.node.outputs[0].name)

    @property
    def sources(self) -> tuple[Source, ...]:
        """Original tensors by columns of the output."""
        tensor = self.weight.const_value
        columns = 0 if tensor is None else tensor.shape.numpy()[-1]
        return sources_of(self.weight, int(columns))

    @property
    def rounded(self) -> bool:
        """True if the activation is quantized on the way."""
        producer = self.x.producer()
        return self.x_scale is not None or is_op(producer, "DequantizeLinear")


class FloatWeights:
    """The float weights of a model's linear layers, by original tensor."""

    def __init__(self, model: ir.Model) -> None:
        self._rows: dict[str, tuple[LazyWeight, Source]] = {}
        for node in model.graph:
            linear = find_linear(node)
            if linear is None:
                continue
            for source in sources_of(linear.initializer, linear.weight.rows_shape[0]):
                self._rows[source.name] = (linear.weight, source)

    def weight(self, sources: tuple[Source, ...], name: str) -> LazyWeight | None:
        """These tensors below each other, for a MatMul; None if one is not known."""
        if not sources or any(source.name not in self._rows for source in sources):
            return None
        known = [self._rows[source.name] for source in sources]
        rows = sum(own.stop - own.start for _, own in known)
        if rows != sum(source.stop - source.start for source in sources):
            return None

        def read(start: int, stop: int) -> Array:
            parts = [weight.read_rows(own.start, own.stop) for weight, own in known]
            return np.concatenate(parts)[start:stop].astype(np.float32, copy=False)

        shape = (rows, known[0][0].rows_shape[1])
        return LazyWeight(read, shape, ir.DataType.FLOAT, name, transposed=True)


def find_cause(run: LocalRun, after: ir.Model, floats: FloatWeights, broken: NodeError) -> Cause:
    """Why the value of ``broken`` is as it is: the weight whose float form helps most, if one does.

    Args:
        run: Gives nodes exact values.
        after: The model of the broken node.
        floats: Of the model before.
        broken: A node of ``after``.
    """
    cut = run.cut(after)
    weighted = _weighted_before(cut, broken.value)
    gains: list[tuple[float, _Weighted]] = []
    for one in weighted:
        other = restored(cut, one.output, floats)
        if other is not None:
            gains.append((run.outputs(other, [broken.value])[broken.value], one))
    best = max(gains, key=lambda gain: gain[0], default=None)
    if best is not None and best[0] >= broken.sqnr_db + GAIN_DB:
        sqnr, one = best
        tensor = _worst_source(run, cut, one, broken)
        return Cause("weight", tensor, str(one.node.name), sqnr, one.output)
    rounded = next((one for one in weighted if one.rounded), None)
    if rounded is not None:
        tensor = str(rounded.x.name).removesuffix(".q")
        return Cause("activation", tensor, str(rounded.node.name), None, rounded.output)
    return Cause("node", broken.value, broken.node, None, broken.value)


def restored(model: ir.Model, output: str, floats: FloatWeights) -> ir.Model | None:
    """A copy in which the node that gives ``output`` multiplies by the float weight; None if it
    has none that is known."""
    copy = model.clone()
    node = next(n for n in copy.graph if any(v.name == output for v in n.outputs))
    one = _as_weighted(node)
    weight = None if one is None else floats.weight(one.sources, f"{output}.restored")
    if one is None or weight is None:
        return None
    emit = Emitter(copy.graph, f"{output}.restored")
    x = one.x
    if one.x_scale is not None:
        wide = emit.op("wide", "Cast", [x], None, to=int(ir.DataType.FLOAT))
        x = emit.op("x", "Mul", [wide, one.x_scale], None)
    initializer = add_initializer(copy.graph, weight, f"{output}.restored.weight")
    result = emit.op("matmul", "MatMul", [x, initializer], None)
    if one.bias is not None:
        result = emit.op("bias", "Add", [result, one.bias], None)
    replace_node([node], emit.nodes, [node.outputs[0]], [result])
    return copy


def _weighted_before(cut: ir.Model, name: str) -> list[_Weighted]:
    """Nodes with weights that a value of a cut model depends on."""
    wanted = {v for node in cut.graph for v in node.outputs if v.name == name}
    found: list[_Weighted] = []
    for node in reversed(list(cut.graph)):
        if any(value in wanted for value in node.outputs):
            wanted.update(v for v in node.inputs if v is not None)
            one = _as_weighted(node)
            if one is not None:
                found.append(one)
    return found[::-1]


def _as_weighted(node: ir.Node) -> _Weighted | None:
    if is_op(node, "QuantizedMatMul", domain=_DOMAIN):
        names = ("q", "s", "weight", "bias")
    elif is_op(node, "Bf16MatMul", domain=_DOMAIN):
        names = ("x", "", "weight", "bias")
    elif is_op(node, "MatMul"):
        return _plain(node)
    else:
        return None
    x, scale, weight, bias = (operand(node, name) if name else None for name in names)
    return None if x is None or weight is None else _Weighted(node, x, scale, weight, bias)


def _plain(node: ir.Node) -> _Weighted | None:
    """A MatMul by an initializer, or by one that is dequantized."""
    x, weight = node.inputs
    producer = None if weight is None else weight.producer()
    if producer is not None and is_op(producer, "DequantizeLinear"):
        weight = producer.inputs[0]
    if x is None or weight is None or not weight.is_initializer():
        return None
    return _Weighted(node, x, None, weight, None)


def _worst_source(run: LocalRun, cut: ir.Model, one: _Weighted, broken: NodeError) -> str:
    """Of weights side by side the one whose columns are worst; all together where the value is
    not the product itself."""
    sources = one.sources
    if len(sources) == 1:
        return sources[0].name
    if one.output != broken.value:
        return str(one.weight.name)
    errors = run.column_errors(cut, broken.value, [(s.start, s.stop) for s in sources])
    return sources[int(np.argmin(errors))].name
