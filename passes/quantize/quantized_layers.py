"""Quantized weights in a graph: what `quantize-weights` puts in the place of linear layers."""

from __future__ import annotations

from dataclasses import dataclass

import onnx_ir as ir

from optc.ir.experts import ExpertLinear, find_expert_linear
from optc.ir.functions import is_op, make_node
from optc.ir.graph import add_initializer, replace_node
from optc.ir.linear import Linear, sources
from optc.ir.pipeline.base import PassReport
from optc.ir.quantized_rows import QuantizedRows
from optc.ir.sources import sources_metadata
from optc.ir.weights import LazyWeight
from optc.passes.numerics.affine import RoundRows, quantized_rows
from optc.passes.numerics.gptq.weights import Factors
from optc.passes.numerics.scheme import Scheme
from optc.passes.quantize.given.grids import GivenWeights, scheme_of_rows
from optc.passes.quantize.kept_rows import find_rows, is_left
from optc.passes.quantize.layer_schemes import PER_CHANNEL, stored_bits
from optc.proof.reference.calibration import calibration_of


@dataclass(frozen=True)
class _Parts:
    """A quantized weight in the graph."""

    rows: QuantizedRows
    values: ir.Value
    scales: ir.Value
    zero_points: ir.Value | None
    group_scales: ir.Value | None

    @property
    def stored_bits(self) -> int:
        """Bits that it takes in memory."""
        return stored_bits(scheme_of_rows(self.rows), self.rows.rows, self.rows.columns)

    @property
    def attributes(self) -> dict[str, int]:
        return {"bits": self.rows.bits, "group_size": self.rows.group_size}

    @property
    def operands(self) -> tuple[ir.Value | None, ...]:
        """Values, scales and zero points, and integer scales if there are any."""
        last = () if self.group_scales is None else (self.group_scales,)
        return (self.values, self.scales, self.zero_points, *last)


class QuantizedLayers:
    """The state of one run: quantized weights and activations are shared by their users."""

    def __init__(
        self,
        model: ir.Model,
        report: PassReport,
        factors: Factors | None,
        given: GivenWeights | None = None,
    ) -> None:
        self.model = model
        self.report = report
        self._factors = factors
        self._given = given or GivenWeights()
        self.weights: dict[ir.Value, _Parts] = {}
        self._labels: dict[ir.Value, str] = {}
        self._activations: dict[tuple[ir.Value, int], ir.Node] = {}
        self._embeddings: list[_Parts] = []

    def quantize_linear(
        self, linear: Linear, scheme: Scheme, activation_bits: int, *, table: bool
    ) -> None:
        """Case 1: replace the linear layer, whose weight may be a ``table`` of embeddings, too."""
        parts = self._parts_of(linear, scheme, table)
        quantize = self._quantized(linear, activation_bits)
        node = make_node(
            self.model,
            "QuantizedMatMul",
            [*quantize.outputs, *parts.operands[:3], linear.bias, *parts.operands[3:]],
            parts.attributes,
            name=linear.matmul.name,
        )
        replace_node(linear.nodes, [node], [linear.output], node.outputs)
        self.report.add(self._labels[linear.initializer])

    def quantize_experts(self, experts: ExpertLinear, scheme: Scheme) -> None:
        """Case 5: replace a matmul by experts."""
        linear = experts.linear
        parts, quantize = self._parts_of(linear, scheme, False), self._quantized(linear, 8)
        node = make_node(
            self.model,
            "QuantizedExpertMatMul",
            [
                *(*quantize.outputs, experts.experts),
                *(*parts.operands[:3], linear.bias, *parts.operands[3:]),
            ],
            {**parts.attributes, **experts.attributes},
            name=linear.matmul.name,
        )
        replace_node([linear.matmul], [node], [linear.output], node.outputs)
        how = "experts" if self._factors is None else "experts rounded plainly"
        self.report.add(f"{self._labels[linear.initializer]}, {how}")

    def _parts_of(self, linear: Linear, scheme: Scheme, table: bool) -> _Parts:
        """The quantized weight of ``linear``, in the graph once."""
        parts = self.weights.get(linear.initializer)
        if parts is None:
            metadata = sources_metadata(sources([linear]))
            rows, self._labels[linear.initializer] = self._rows(linear, scheme, table)
            parts = self._add_parts(rows, linear.name, metadata)
            self.weights[linear.initializer] = parts
        return parts

    def _quantized(self, linear: Linear, bits: int) -> ir.Node:
        """The node that quantizes the operand of ``linear``, one for all who read so many bits."""
        quantize = self._activations.get((linear.x, bits))
        if quantize is None:
            name = linear.x.name if bits == 8 else f"{linear.x.name}.{bits}bit"
            quantize = make_node(
                self.model,
                "QuantizeActivation",
                [linear.x],
                {"bits": bits},
                outputs=[f"{name}.q", f"{name}.s"],
                shapes=_quantized_shapes(linear.x),
                name=f"{name}.quantize",
            )
            self.model.graph.insert_before(linear.matmul, [quantize])
            self._activations[linear.x, bits] = quantize
        return quantize

    def quantize_embeddings(self, head: LazyWeight | None, tied: _Parts | None) -> None:
        """Case 4: lookups in constant tables [V, D] become ``optc::QuantizedGather``."""
        for node in list(self.model.graph):
            table = node.inputs[0].const_value if is_op(node, "Gather") and node.inputs[0] else None
            if not isinstance(table, LazyWeight) or len(table.rows_shape) != 2 or table.transposed:
                continue
            shared = head is not None and table.read_rows == head.read_rows
            if shared and tied is not None:
                parts, label = tied, "embedding shares the head"
            elif shared:
                self.report.skip(node, "the tied head stays float, so the embedding does too")
                continue
            else:
                name = table.name or "embedding"
                given = self._given.rows(table, PER_CHANNEL, name, table=True)
                rows = given or quantized_rows(table, PER_CHANNEL, name)
                parts = self._add_parts(rows, name, {})
                self._embeddings.append(parts)
                label = "embedding int8 per row"
                if given is not None:
                    label = f"embedding {scheme_of_rows(given).label} as given"
                else:
                    self._given.count(table, PER_CHANNEL)
            new = make_node(
                self.model,
                "QuantizedGather",
                [node.inputs[1], *parts.operands],
                parts.attributes,
                name=node.name,
            )
            replace_node([node], [new], node.outputs, new.outputs)
            self.report.add(label)

    def warnings(self) -> list[str]:
        """Warnings about weights that were quantized already and are quantized again."""
        return self._given.warnings()

    def facts(self) -> dict[str, float]:
        """Quantized weights and their bits per weight, scales and zero points included."""
        every = [*self.weights.values(), *self._embeddings]
        weights = sum(p.rows.rows * p.rows.columns for p in every)
        bits = sum(p.stored_bits for p in every)
        return {"weights": weights, "bits_per_weight": bits / weights if weights else 0.0}

    def _rows(self, linear: Linear, scheme: Scheme, table: bool) -> tuple[QuantizedRows, str]:
        """The weight of ``linear``, and how it came about: as an earlier pass rounded it, as the
        checkpoint has it, or rounded as it is read."""
        name = linear.name
        label = f"{scheme.label}, gptq" if self._by_gptq(linear) else scheme.label
        kept = find_rows(calibration_of(self.model), linear, scheme, name)
        given = None
        if kept is None:
            given = self._given.rows(linear.weight, scheme, name, table=table)
        if given is not None:
            return given, f"{scheme_of_rows(given).label} as given"
        self._given.count(linear.weight, scheme)
        return kept or quantized_rows(linear.weight, scheme, name, self._rounder(linear)), label

    def _by_gptq(self, linear: Linear) -> bool:
        if self._factors is None or find_expert_linear(linear.matmul) is not None:
            return False
        return not is_left(calibration_of(self.model), linear)

    def _rounder(self, linear: Linear) -> RoundRows | None:
        if self._factors is None or not self._by_gptq(linear):
            return None
        return self._factors.rounder(linear, linear.name)

    def _add_parts(self, rows: QuantizedRows, name: str, metadata: dict[str, str]) -> _Parts:
        graph = self.model.graph

        def optional(part: LazyWeight | None, suffix: str) -> ir.Value | None:
            return None if part is None else add_initializer(graph, part, f"{name}.{suffix}")

        return _Parts(
            rows,
            add_initializer(graph, rows.values(), f"{name}.quantized", metadata),
            add_initializer(graph, rows.scales(), f"{name}.scale"),
            optional(rows.zero_points(), "zero_point"),
            optional(rows.group_scales(), "group_scale"),
        )


def _quantized_shapes(x: ir.Value) -> list[list[int | str]] | None:
    dims = None if x.shape is None else [d if isinstance(d, int) else str(d) for d in x.shape]
    return None if dims is None else [dims, [*dims[:-1], 1]]
