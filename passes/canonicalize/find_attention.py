"""`find-attention`: attention over heads becomes ``optc::Attention`` over folded heads."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import onnx_ir as ir

from optc.ir.functions import DOMAIN, is_op, make_node
from optc.ir.graph import remove_unused
from optc.passes.canonicalize.dataflow import dims, insert, miss, operand, rank, substitute
from optc.passes.canonicalize.heads import Heads, fold, heads_of, split
from optc.pipeline.base import Pass, PassReport


@dataclass(frozen=True)
class How:
    """What an attention does with its scores: attributes and operands of ``optc::Attention``."""

    scale: float
    softcap: float = 0.0
    window: int = 0
    chunk: int = 0
    sinks: ir.Value | None = None
    slopes: ir.Value | None = None

    @property
    def label(self) -> str:
        """What it has, for the report."""
        sizes = (("window", self.window), ("chunk", self.chunk))
        operands = (("sinks", self.sinks), ("slopes", self.slopes))
        found = [f"{name} {size}" for name, size in sizes if size] or ["full"]
        return ", ".join([*found, *(name for name, value in operands if value is not None)])


@dataclass(frozen=True)
class FindAttention(Pass):
    """Causal self-attention.

    1. ``optc::Attention`` as captured, on q [B, H, S, Dk], k, v [B, Hkv, S, D], and sinks [H]
       where there are any, giving [B, S, H, Dv].
    2. ``ai.onnx Attention`` that is causal and has no mask, 4-D or 3-D.
    """

    name: ClassVar[str] = "find-attention"
    required: ClassVar[bool] = True

    def run(self, model: ir.Model) -> PassReport:
        """Rewrite ``model`` in place."""
        report = PassReport()
        for node in list(model.graph):
            if is_op(node, "Attention", domain=DOMAIN) and rank(node.inputs[0]) == 4:
                _captured(model, node, report)
            elif is_op(node, "Attention"):
                _standard(model, node, report)
        remove_unused(model)
        return report


def _captured(model: ir.Model, node: ir.Node, report: PassReport) -> None:
    """Legal case 1."""
    heads = _operand_heads(node, report)
    if heads is None:
        return
    sinks = node.inputs[3] if len(node.inputs) > 3 else None
    if sinks is not None and dims(sinks) != [heads[0].count]:
        reason = f"its sinks have shape {dims(sinks)}, not one of {heads[0].count} heads"
        miss(report, node, f"not an attention pattern I know: {reason}")
        return
    how = How(
        node.attributes.get_float("scale", 0.0),
        node.attributes.get_float("softcap", 0.0),
        node.attributes.get_int("window", 0),
        node.attributes.get_int("chunk", 0),
        sinks,
    )
    folded = [fold(node, operand(node, i), h) for i, h in enumerate(heads)]
    out = _emit(model, node, folded, heads, how)
    result = Heads(heads[0].count, heads[2].size, tokens_last=False)
    substitute(node.outputs[0], split(node, out, result))
    report.add(how.label)


def _standard(model: ir.Model, node: ir.Node, report: PassReport) -> None:
    """Legal case 2."""
    reason = _not_plain(node)
    if reason:
        miss(report, node, f"not an attention pattern I know: {reason}")
        return
    flat = rank(node.inputs[0]) == 3
    heads = _stated_heads(node) if flat else _operand_heads(node, report)
    if heads is None:
        return
    scale = node.attributes.get_float("scale", heads[0].size ** -0.5)
    softcap = node.attributes.get_float("softcap", 0.0)
    values = [operand(node, i) for i in range(3)]
    folded = values if flat else [fold(node, v, h) for v, h in zip(values, heads, strict=True)]
    out = _emit(model, node, folded, heads, How(scale, softcap))
    result = Heads(heads[0].count, heads[2].size, tokens_last=True)
    substitute(node.outputs[0], out if flat else split(node, out, result))
    report.add("full")


def _not_plain(node: ir.Node) -> str | None:
    if any(value is not None for value in node.inputs[3:]):
        return "it has a mask or a past"
    if not node.attributes.get_int("is_causal", 0):
        return "it is not causal"
    if any(value.uses() for value in node.outputs[1:]):
        return "its keys, values or scores are read"
    return None


def _operand_heads(node: ir.Node, report: PassReport) -> list[Heads] | None:
    found = [heads_of(operand(node, i)) for i in range(3)]
    for index, heads in enumerate(found):
        if heads is None or not heads.tokens_last:
            shape = dims(operand(node, index))
            reason = f"{'qkv'[index]} has shape {shape}, not [B, heads, S, size]"
            miss(report, node, f"not an attention pattern I know: {reason}")
            return None
    known = [heads for heads in found if heads is not None]
    if known[1].count != known[2].count or known[0].count % known[1].count:
        counts = [heads.count for heads in known]
        miss(report, node, f"not an attention pattern I know: q, k, v have {counts} heads")
        return None
    return known


def _stated_heads(node: ir.Node) -> list[Heads]:
    """Heads of 3-D operands, from the attributes."""
    query, key = (node.attributes[f"{name}_num_heads"].as_int() for name in ("q", "kv"))
    widths = [dims(operand(node, i))[-1] for i in range(3)]
    counts = (query, key, key)
    return [
        Heads(n, int(w or 0) // n, tokens_last=False) for n, w in zip(counts, widths, strict=True)
    ]


def _emit(
    model: ir.Model,
    node: ir.Node,
    folded: list[ir.Value],
    heads: list[Heads],
    how: How,
) -> ir.Value:
    attributes = {
        "num_heads": heads[0].count,
        "kv_num_heads": heads[1].count,
        "scale": how.scale,
        "softcap": how.softcap,
        "window": how.window,
        "chunk": how.chunk,
    }
    operands = [*folded, how.sinks, how.slopes]
    new = make_node(model, "Attention", operands, attributes, name=node.name)
    batch, tokens, _ = dims(folded[0])
    new.outputs[0].shape = ir.Shape([batch, tokens, heads[0].count * heads[2].size])
    insert(node, new)
    return new.outputs[0]
