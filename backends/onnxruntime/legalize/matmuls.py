"""`ort-matmuls`: matmuls and embeddings in the forms that ONNX Runtime has fast kernels for."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import onnx_ir as ir

from optc.backends.onnxruntime.legalize.packed import PackedRows
from optc.ir.emit import Emitter, dims_of
from optc.ir.functions import DOMAIN, is_op
from optc.ir.graph import add_initializer, constant, remove_unused, replace_node
from optc.ir.linear import find_linear
from optc.ir.pipeline.base import ALONE, Pass, PassContext, PassReport
from optc.ir.quantized_rows import QuantizedPart
from optc.ir.quantizers import FloatOperands, activation_bits
from optc.ir.weights import LazyWeight

CONTRIB = "com.microsoft"
#: What an operator that quantizes activations itself, in blocks of K, multiplies, by the bits asked
#: for: int8, or float32.
_PRODUCTS = {8: 4, 16: 1}
_Rewritten = tuple[str, ir.Value]


@dataclass(frozen=True)
class LowerMatmuls(Pass):
    """Weights are stored by output channel, as they are read, and multiplied from there.

    Legal cases:
        1. ``optc::QuantizedMatMul``: MatMulNBits, which quantizes the activations by blocks of K
           and not by token, so that the operators that did so go away; whole channels become
           blocks that share a scale;
        2. ``optc::QuantizedGather``: GatherBlockQuantized from the same values and scales;
        3. ``optc::Bf16MatMul`` and ``optc::Bf16Gather``: the weight is stored in bfloat16 and
           widened when the session opens, since there are no bfloat16 kernels: products are
           float32;
        4. MatMul with a constant weight: FusedMatMul of its transpose.
    """

    name: ClassVar[str] = "ort-matmuls"
    required: ClassVar[bool] = True

    def run(self, model: ir.Model, context: PassContext = ALONE) -> PassReport:
        """Rewrite ``model`` in place."""
        report = PassReport()
        work = _Rewriter(model)
        for node in list(model.graph):
            found = work.rewritten(node)
            if found is not None:
                kind, emit, output = found
                replace_node([node], emit.nodes, node.outputs, [output])
                report.add(kind)
        model.opset_imports[CONTRIB] = 1
        remove_unused(model)
        report.facts = {"activations_no_longer_quantized": len(work.floats)}
        return report


class _Rewriter:
    def __init__(self, model: ir.Model) -> None:
        self._graph = model.graph
        self.floats = FloatOperands(model)
        #: Initializers of a weight, whoever reads it: a tied head is the embedding's table.
        self._stored: dict[object, list[ir.Value]] = {}
        for value in self._graph.initializers.values():
            tensor = value.const_value
            if isinstance(tensor, LazyWeight) and not tensor.transposed:
                self._stored[_key(tensor)] = [value]

    def rewritten(self, node: ir.Node) -> tuple[str, Emitter, ir.Value] | None:
        """The replacement of ``node``, with its kind; None if it stays."""
        emit = Emitter(self._graph, node.name or node.outputs[0].name or node.op_type)
        if is_op(node, "QuantizedMatMul", domain=DOMAIN):
            kind, value = self._quantized_matmul(emit, node)
        elif is_op(node, "QuantizedGather", domain=DOMAIN):
            kind, value = self._quantized_gather(emit, node)
        elif is_op(node, "Bf16MatMul", domain=DOMAIN):
            value = _transposed_matmul(emit, node, self._widened(emit, node.inputs[1]))
            if len(node.inputs) > 2 and node.inputs[2] is not None:
                dims = dims_of(node.outputs[0])
                value = emit.op("bias", "Add", [value, node.inputs[2]], dims)
            kind = "bfloat16 as float32"
        elif is_op(node, "Bf16Gather", domain=DOMAIN):
            operands = [self._rows(node.inputs[1]), node.inputs[0]]
            narrow = emit.op("rows", "Gather", operands, None, ir.DataType.BFLOAT16, axis=0)
            value = _wide(emit, narrow, dims_of(node.outputs[0]))
            kind = "embedding bfloat16"
        elif find_linear(node) is not None:
            value = _transposed_matmul(emit, node, self._rows(node.inputs[1]))
            kind = "float32"
        else:
            return None
        return kind, emit, value

    def _quantized_matmul(self, emit: Emitter, node: ir.Node) -> _Rewritten:
        weight, bias = _weight(node), [*node.inputs, None][5:6]
        packed, parts = self._packed(weight)
        x = self.floats.of(node.inputs[0])
        if x is None:
            raise ValueError(f"{node.name}: its activations are quantized by nothing known")
        operands = [x, *parts, *[None] * (4 - len(parts))]
        value = emit.op(
            "matmul",
            "MatMulNBits",
            [*operands, *bias] if any(bias) else operands[: 1 + len(parts)],
            dims_of(node.outputs[0]),
            domain=CONTRIB,
            K=packed.source.columns,
            N=packed.source.rows,
            bits=packed.bits,
            block_size=packed.block,
            accuracy_level=_PRODUCTS[activation_bits(node.inputs[0])],
        )
        return f"int{packed.bits} in blocks of {packed.block}", value

    def _quantized_gather(self, emit: Emitter, node: ir.Node) -> _Rewritten:
        packed, (values, *parameters) = self._packed(_weight(node, 1))
        width = packed.source.columns
        flat = packed.blocks * packed.block * packed.bits // 8
        shape = emit.integers("flat", [packed.source.rows, flat])
        table = emit.op("table", "Reshape", [values, shape], [packed.source.rows, flat],
                        ir.DataType.UINT8)  # fmt: skip
        value = emit.op(
            "lookup",
            "GatherBlockQuantized",
            [table, node.inputs[0], *parameters],
            None,
            domain=CONTRIB,
            bits=packed.bits,
            block_size=packed.block,
            gather_axis=0,
            quantize_axis=1,
        )
        if packed.blocks * packed.block != width:
            first, last, axis = (emit.integers(n, [x]) for n, x in
                                 (("first", 0), ("last", width), ("axis", -1)))  # fmt: skip
            value = emit.op("columns", "Slice", [value, first, last, axis], None)
        value.shape = node.outputs[0].shape
        return f"embedding int{packed.bits}", value

    def _packed(self, weight: LazyWeight) -> tuple[PackedRows, list[ir.Value]]:
        if not isinstance(weight, QuantizedPart):
            raise ValueError(f"{weight.name} is not quantized")
        source = weight.whole
        packed = PackedRows.of(source.as_int8())
        if id(source) not in self._stored:
            self._stored[id(source)] = [
                add_initializer(self._graph, part, part.name or "weight") for part in packed.parts()
            ]
        return packed, self._stored[id(source)]

    def _widened(self, emit: Emitter, value: ir.Value | None) -> ir.Value:
        return _wide(emit, self._rows(value), list(_lazy(value).rows_shape))

    def _rows(self, value: ir.Value | None) -> ir.Value:
        """The weight [N, K] of what the graph sees as [K, N]."""
        weight = _lazy(value)
        key = _key(weight)
        if key not in self._stored:
            rows = weight.transpose() if weight.transposed else weight
            self._stored[key] = [add_initializer(self._graph, rows, f"{weight.name}.rows")]
        return self._stored[key][0]


def _key(weight: LazyWeight) -> object:
    return weight.read_rows, weight.rows_shape, weight.dtype


def _wide(emit: Emitter, value: ir.Value, dims: list[int | str] | None) -> ir.Value:
    return emit.op("widened", "Cast", [value], dims, to=int(ir.DataType.FLOAT))


def _transposed_matmul(emit: Emitter, node: ir.Node, rows: ir.Value) -> ir.Value:
    dims = dims_of(node.outputs[0])
    operands = [node.inputs[0], rows]
    return emit.op("matmul", "FusedMatMul", operands, dims, domain=CONTRIB, transB=1)


def _weight(node: ir.Node, index: int = 2) -> LazyWeight:
    return _lazy(node.inputs[index])


def _lazy(value: ir.Value | None) -> LazyWeight:
    tensor = constant(value)
    if not isinstance(tensor, LazyWeight):
        raise ValueError(f"{None if value is None else value.name} is no weight")
    return tensor
