"""`rotate-activations`: what linear layers read is rotated in blocks before it is quantized."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import onnx_ir as ir

from optc.ir.functions import is_op
from optc.ir.linear import Linear, head_of
from optc.ir.pipeline.base import Pass, PassReport
from optc.ir.weights import LazyWeight
from optc.passes.quantize.quantize_weights import QuantizeWeights
from optc.passes.quantize.rotate.blocks import InBlocks, rotation_node
from optc.passes.quantize.rotate.readers import Input, quantized_inputs
from optc.passes.quantize.rotate.rotated_rows import rotated_rows
from optc.passes.quantize.smooth.smooth import LATER

#: Passes behind it that give the head's input to drafts.
_HIDDEN_STATES = frozenset({"hidden-states", "medusa-heads"})


@dataclass(frozen=True)
class RotateActivations(InBlocks):
    """Linear layers read their input rotated in Hadamard blocks, with weights that are rotated too.

    A token's int8 values share one scale. In trained models a few channels are 20 to 40 times as
    large as the others, and take the range. A rotation spreads each channel over its block. The
    function stays, for (x T) · (w T) = x · w; the graph needs no pattern, and no text is read
    (QuaRot, Ashkboos et al., 2024, arXiv:2404.00456, rotates some inputs so).

    Legal cases, by input x of linear layers that ``quantize-weights`` behind it quantizes:
        1. x gets ``optc::BlockHadamard`` behind it, once for all its readers, experts too;
        2. the head's input, where the embedding is tied: looked up rows are rotated back.

    Left alone are inputs of layers whose weights were pruned or lie on a grid of fewer than 8 bits
    that ``quantize-weights`` keeps: a rotation would undo both. So is the head's input where drafts
    read it, which were trained on it as it is.

    An input of fewer channels than ``block`` has gets smaller blocks.
    """

    name: ClassVar[str] = "rotate-activations"
    pays: ClassVar[str] = (
        "On real models: activations alone of SmolLM2-135M lost .0025 in blocks of 64 instead "
        "of .0396 of mean KL (ADR 0146)."
    )
    unlike_class: ClassVar[str] = (
        "weights are rotated, as inputs are while the engine runs; "
        "--set rotate-activations.block=0 --set rotate-kv.block=0 leaves them as they are"
    )
    before: ClassVar[tuple[str, ...]] = (
        "rotate-activations",
        "calibrate",
        "allocate-activations",
        *LATER,
    )

    def rotate(
        self,
        model: ir.Model,
        quantize: QuantizeWeights,
        later: Sequence[Pass],
        report: PassReport,
    ) -> None:
        """Rewrite ``model`` in place."""
        head = head_of(model)
        kept = any(one.name in _HIDDEN_STATES for one in later)
        inputs = quantized_inputs(
            model, quantize, self.block, report, head=quantize.head and not kept
        )
        for one in inputs:
            _rotate(model, one)
            report.add(f"blocks of {one.block}")
            if head is not None and head.matmul in one.readers:
                _rotate_embedding(model, head, one, report)


def _rotate(model: ir.Model, one: Input) -> None:
    """Let the readers of an input read it rotated, and rotate their weights."""
    node = rotation_node(model, one.x, one.block, one.width)
    model.graph.insert_before(one.readers[0], [node])
    for reader in one.readers:
        reader.replace_input_with(list(reader.inputs).index(one.x), node.outputs[0])
    for initializer, weight in one.weights.items():
        initializer.const_value = rotated_rows(weight, one.block)


def _rotate_embedding(model: ir.Model, head: Linear, one: Input, report: PassReport) -> None:
    """Let lookups in the head's table find rotated rows, which are rotated back behind them."""
    turned = rotated_rows(head.weight, one.block)
    head.initializer.const_value = turned
    for node in list(model.graph):
        table = node.inputs[0].const_value if is_op(node, "Gather") and node.inputs[0] else None
        if not isinstance(table, LazyWeight) or table.read_rows != head.weight.read_rows:
            continue
        value, embedded = node.inputs[0], node.outputs[0]
        if value is None or table.transposed:
            continue
        value.const_value = turned.transpose()
        users = list(embedded.uses())
        back = rotation_node(model, embedded, one.block, one.width, inverse=True)
        model.graph.insert_after(node, [back])
        for use in users:
            use.node.replace_input_with(use.idx, back.outputs[0])
        report.add("tied embedding")
