"""`adapters`: room for LoRA adapters in every linear layer of a ragged step."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

import onnx_ir as ir

from optc.errors import InputError
from optc.ir.experts import EXPERT_MATMULS
from optc.ir.forms.form import Form
from optc.ir.forms.ragged import RaggedStep
from optc.ir.functions import DOMAIN, is_op, make_node
from optc.ir.graph import constant, remove_unused, width
from optc.ir.linear import find_linear
from optc.ir.pipeline.base import ALONE, Pass, PassContext, PassReport
from optc.ir.pipeline.phase import Phase
from optc.ir.sources import sources_of
from optc.runtime.executable.adapter_spec import AdapterModule, AdapterPart, AdapterSpec

#: Ranks are rounded up to a multiple of this, a vector of the kernels.
RANK_MULTIPLE = 16
#: Names of the pass's inputs: the adapter slot of every row, and of every row with logits.
ROW_INPUTS = {"T": "adapters", "R": "logit_adapters"}


@dataclass(frozen=True)
class AddAdapters(Pass):
    """Linear layers, the head apart, get ``optc::AdapterMatMul`` behind them.

    Adapters are chosen by row: slot -1 is none, and then nothing changes. A and B of all slots
    are pools that the runtime fills, so one artifact serves any adapter of the model
    (LoRA: Hu et al. 2021; many at once: Punica, Chen et al. 2023; S-LoRA, Sheng et al. 2023).
    Quantized layers give their adapters the quantized activations, so that nothing is computed
    twice.

    Attributes:
        max: Adapters that can be loaded at once.
        rank: Largest rank; rounded up to a multiple of 16.
    """

    name: ClassVar[str] = "adapters"
    phase: ClassVar[Phase] = Phase.ADDITION
    added_by: ClassVar[str] = "--adapters"
    adds: ClassVar[str] = "AdapterMatMul"
    unlike_class: ClassVar[str] = (
        "the engine has room for LoRA adapters, which are applied beside its weights"
    )
    required: ClassVar[bool] = True
    knows_experts: ClassVar[bool] = False
    takes: ClassVar[tuple[type[Form], ...]] = (RaggedStep,)
    gives: ClassVar[type[Form]] = RaggedStep
    max: int = 8
    rank: int = 16

    def __post_init__(self) -> None:
        """Refuse room that no engine has.

        Raises:
            InputError: ``max`` or ``rank`` is out of range.
        """
        self.check_option("max", range(1, 257), "from 1 to 256")
        self.check_option("rank", range(1, 257), "from 1 to 256")

    def requires(self, model: ir.Model) -> None:
        """The pass has not run before."""
        if RaggedStep.read(model).adapters is not None:
            raise InputError("the model has adapters already", where=f"pass {self.name}")

    def ensures(self, model: ir.Model) -> None:
        """The step states its room, and has the pools for it."""
        if RaggedStep.read(model).adapters is None:
            raise RuntimeError("adapters made no room")

    def run(self, model: ir.Model, context: PassContext = ALONE) -> PassReport:
        """Rewrite ``model`` in place."""
        report, step = PassReport(), RaggedStep.read(model)
        rank = -(-self.rank // RANK_MULTIPLE) * RANK_MULTIPLE
        rows = {name: _row_input(model.graph, name) for name in ROW_INPUTS}
        heads = _heads(model.graph.outputs[0])
        modules: list[AdapterModule] = []
        for node in list(model.graph):
            layer = _layer(node)
            if is_op(node, *EXPERT_MATMULS, domain=DOMAIN):
                report.skip(node, "experts take no adapters")
            if layer is None or node in heads:
                continue
            symbol = _row_symbol(node)
            if symbol not in rows:
                report.skip(node, f"its rows are {symbol}, neither T nor R")
                continue
            _adapt(model, layer, rows[symbol], len(modules), self.max, rank)
            modules.append(AdapterModule(layer.k, layer.n, layer.parts, layer.hadamard))
            report.add("linear layer")
        for value in rows.values():
            if not value.consumers():
                model.graph.inputs.remove(value)
        spec = AdapterSpec(self.max, rank, tuple(modules))
        replace(step, adapters=spec).attach(model)
        remove_unused(model)
        report.facts = {"max": self.max, "rank": rank}
        return report


@dataclass(frozen=True)
class _Layer:
    """A linear layer of any precision.

    Attributes:
        node: Its matmul.
        output: Its result, bias included.
        operands: x, or q and s.
        k: Width of the operand.
        n: Width of the result.
        parts: Original weights with their columns.
        hadamard: Channels of a block of the rotation that the operand comes in; 0 is none.
    """

    node: ir.Node
    output: ir.Value
    operands: Sequence[ir.Value | None]
    k: int
    n: int
    parts: tuple[AdapterPart, ...]
    hadamard: int


def _heads(logits: ir.Value) -> set[ir.Node]:
    """The layers as wide as the logits that these are made of, with no other layer in between."""
    heads: set[ir.Node] = set()
    seen: set[ir.Node] = set()
    waiting = [logits]
    while waiting:
        node = waiting.pop().producer()
        if node is None or node in seen:
            continue
        seen.add(node)
        layer = _layer(node)
        if layer is None:
            waiting += [value for value in node.inputs if value is not None]
        elif layer.n == width(logits):
            heads.add(node)
    return heads


def _layer(node: ir.Node) -> _Layer | None:
    if is_op(node, "QuantizedMatMul", domain=DOMAIN):
        weight, operands = node.inputs[2], node.inputs[:2]
    elif is_op(node, "Bf16MatMul", domain=DOMAIN) or find_linear(node) is not None:
        weight, operands = node.inputs[1], node.inputs[:1]
    else:
        return None
    tensor = constant(weight)
    if weight is None or tensor is None:
        return None
    linear = find_linear(node)
    output = node.outputs[0] if linear is None else linear.output
    k, n = (int(d) for d in tensor.shape.numpy())
    return _Layer(node, output, operands, k, n, _parts(weight, n), _rotation_of(operands[0]))


def _rotation_of(x: ir.Value | None) -> int:
    """The size of the blocks that an operand was rotated in, before it was quantized or not."""
    node = None if x is None else x.producer()
    if node is None:
        return 0
    if is_op(node, "BlockHadamard", domain=DOMAIN):
        return node.attributes.get_int("block", 0)
    if is_op(node, "QuantizeActivation", domain=DOMAIN) and "hadamard" not in node.attributes:
        return _rotation_of(node.inputs[0])
    return node.attributes.get_int("hadamard", 0)


def _parts(weight: ir.Value, n: int) -> tuple[AdapterPart, ...]:
    entries = sorted(sources_of(weight, n), key=lambda entry: entry.start)
    return tuple(
        AdapterPart(entry.tensor or entry.name, entry.start, entry.stop, entry.of, entry.ranges)
        for entry in entries
    )


def _row_symbol(node: ir.Node) -> str:
    shape = node.outputs[0].shape
    return "?" if shape is None else str(shape[0])


def _row_input(graph: ir.Graph, symbol: str) -> ir.Value:
    value = ir.Value(
        name=ROW_INPUTS[symbol], type=ir.TensorType(ir.DataType.INT32), shape=ir.Shape([symbol])
    )
    graph.inputs.append(value)
    return value


def _adapt(
    model: ir.Model, layer: _Layer, adapters: ir.Value, index: int, slots: int, rank: int
) -> None:
    """Insert the operator behind the layer, with pools of its own."""
    starts = [part.start for part in layer.parts]
    pools = [
        _pool(model.graph, f"adapter_a.{index}", (slots, layer.k, rank * len(starts))),
        _pool(model.graph, f"adapter_b.{index}", (slots, rank, layer.n)),
    ]
    output = layer.output
    node = make_node(
        model,
        "AdapterMatMul" if len(layer.operands) == 1 else "QuantizedAdapterMatMul",
        [output, *layer.operands, adapters, *pools],
        {"rank": rank, "parts": ",".join(map(str, starts))},
        name=f"{layer.node.name or output.name}.adapters",
    )
    adapted = node.outputs[0]
    adapted.name, adapted.shape = f"{output.name}.adapted", output.shape
    ir.convenience.replace_all_uses_with([output], [adapted], True)
    node.replace_input_with(0, output)
    producer = output.producer()
    if producer is None or producer.graph is None:
        raise RuntimeError(f"{output.name} is computed by no node of the graph")
    producer.graph.insert_after(producer, [node])


def _pool(graph: ir.Graph, name: str, shape: Sequence[int]) -> ir.Value:
    value = ir.Value(name=name, type=ir.TensorType(ir.DataType.FLOAT), shape=ir.Shape(shape))
    graph.inputs.append(value)
    return value
