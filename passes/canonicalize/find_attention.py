"""`find-attention`: attention over heads becomes ``optc::Attention`` over folded heads."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import onnx_ir as ir

from optc.ir.functions import DOMAIN, is_op, make_node
from optc.ir.graph import add_initializer, remove_unused
from optc.ir.pipeline.base import ALONE, Pass, PassContext, PassReport
from optc.ir.pipeline.phase import Effect, Phase
from optc.passes.canonicalize.dataflow import dims, emit, insert, miss, operand, rank, substitute
from optc.passes.canonicalize.heads import Heads, fold, heads_of, split
from optc.passes.canonicalize.spelled.mask import Probed
from optc.passes.canonicalize.spelled.match import match
from optc.passes.canonicalize.spelled.pattern import Pattern
from optc.passes.canonicalize.spelled.region import ForeignError


@dataclass(frozen=True)
class How:
    """Settings of an attention's scores: attributes and operands of ``optc::Attention``."""

    scale: float
    softcap: float = 0.0
    window: int = 0
    chunk: int = 0
    sinks: ir.Value | None = None
    slopes: ir.Value | None = None
    biases: ir.Value | None = None

    @property
    def label(self) -> str:
        """The settings in use, for the report."""
        sizes = (("window", self.window), ("chunk", self.chunk))
        operands = (("sinks", self.sinks), ("slopes", self.slopes), ("distances", self.biases))
        found = [f"{name} {size}" for name, size in sizes if size] or ["full"]
        return ", ".join([*found, *(name for name, value in operands if value is not None)])


@dataclass(frozen=True)
class FindAttention(Pass):
    """Causal self-attention.

    1. ``optc::Attention`` as captured, on q [B, H, S, Dk], k, v [B, Hkv, S, D], and sinks [H]
       where there are any, giving [B, S, H, Dv].
    2. ``ai.onnx Attention`` without a past, 4-D or 3-D, that is causal by itself or by its mask.
    3. MatMul of queries and keys, anything element-wise, Softmax, and MatMul with values.

    What masks show and add in cases 2 and 3 is found by probing (`spelled`): all tokens, a window
    or a chunk, and slopes of heads, or what they add by distance.
    """

    name: ClassVar[str] = "find-attention"
    phase: ClassVar[Phase] = Phase.CANONICAL
    effects: ClassVar[Effect] = Effect.KEEPS_PARAMETERS
    required: ClassVar[bool] = True

    def run(self, model: ir.Model, context: PassContext = ALONE) -> PassReport:
        """Rewrite ``model`` in place."""
        report = PassReport()
        probed = Probed(model.graph)
        for node in list(model.graph):
            if is_op(node, "Attention", domain=DOMAIN) and rank(node.inputs[0]) == 4:
                _captured(model, node, report)
            elif is_op(node, "Attention"):
                _standard(model, node, probed, report)
            elif is_op(node, "Softmax"):
                _spelled(model, node, probed, report)
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


def _standard(model: ir.Model, node: ir.Node, probed: Probed, report: PassReport) -> None:
    """Legal case 2."""
    flat = rank(node.inputs[0]) == 3
    heads = _stated_heads(node) if flat else _operand_heads(node, report)
    if heads is None:
        return
    mask = node.inputs[3] if len(node.inputs) > 3 else None
    try:
        pattern = _pattern(node, mask, heads, probed)
    except ForeignError as error:
        miss(report, node, f"not an attention pattern I know: {error}")
        return
    scale = node.attributes.get_float("scale", heads[0].size ** -0.5)
    how = _how(model, pattern, scale, node.attributes.get_float("softcap", 0.0))
    values = [operand(node, i) for i in range(3)]
    folded = values if flat else [fold(node, v, h) for v, h in zip(values, heads, strict=True)]
    out = _emit(model, node, folded, heads, how)
    result = Heads(heads[0].count, heads[2].size, tokens_last=True)
    substitute(node.outputs[0], out if flat else split(node, out, result))
    report.add(how.label)


def _pattern(node: ir.Node, mask: ir.Value | None, heads: list[Heads], probed: Probed) -> Pattern:
    """The pattern that a standard attention's rows see.

    Raises:
        ForeignError: It is not causal self-attention.
    """
    causal = bool(node.attributes.get_int("is_causal", 0))
    if any(value is not None for value in node.inputs[4:]):
        raise ForeignError("it has a past")
    if any(value.uses() for value in node.outputs[1:]):
        raise ForeignError("its keys, values or scores are read")
    if mask is None:
        if not causal:
            raise ForeignError("it is not causal")
        return Pattern()
    return probed.scores(mask, None, heads[0].count, causal=causal).pattern


def _spelled(model: ir.Model, node: ir.Node, probed: Probed, report: PassReport) -> None:
    """Legal case 3."""
    found = match(node)
    if isinstance(found, str):
        if found:
            miss(report, node, f"not an attention pattern I know: {found}")
        return
    last = found.results[0].producer()
    if last is None:
        return
    k, perm = found.k
    keys = (
        k
        if perm is None
        else emit(last, "Transpose", [k], k, {"perm": perm}, [dims(k)[i] for i in perm])
    )
    values = [found.q, keys, found.v]
    heads = [heads_of(value) for value in values]
    known = [one for one in heads if one is not None and one.tokens_last]
    if len(known) != 3 or known[1].count != known[2].count or known[0].count % known[1].count:
        shapes = ", ".join(str(dims(value)) for value in values)
        miss(report, node, f"not an attention pattern I know: q, k, v are {shapes}")
        return
    if len({dims(value)[2] for value in values}) != 1:
        miss(report, node, "not an attention pattern I know: its keys are of other tokens")
        return
    try:
        scores = probed.scores(found.scores, found.products, known[0].count)
    except ForeignError as error:
        miss(report, node, f"not an attention pattern I know: {error}")
        return
    how = _how(model, scores.pattern, scores.scale, 0.0)
    folded = [fold(last, v, h) for v, h in zip(values, known, strict=True)]
    out = _emit(model, last, folded, known, how)
    for result in found.results:
        heads_out = Heads(known[0].count, known[2].size, tokens_last=True)
        _same_tokens(model.graph, dims(result)[2], dims(out)[1])
        substitute(result, split(last, out, heads_out))
    report.add(f"spelled out, {how.label}")


def _same_tokens(graph: ir.Graph, old: int | str | None, new: int | str | None) -> None:
    """Name the tokens of what was computed of an attention's result as those of its operands: a
    mask cut out of a table had made them a bound of both."""
    if old == new or not isinstance(old, str):
        return
    for node in graph:
        for value in node.outputs:
            if old in dims(value):
                value.shape = ir.Shape([new if dim == old else dim for dim in dims(value)])
        if is_op(node, "Reshape") and any(old in str(dim) for dim in dims(node.outputs[0])):
            _restate(node)


def _restate(reshape: ir.Node) -> None:
    """Give a Reshape's result its input's shape where all dimensions but one are equal."""
    before, after = dims(operand(reshape, 0)), dims(reshape.outputs[0])
    if len(before) == len(after) and sum(a != b for a, b in zip(before, after, strict=True)) == 1:
        reshape.outputs[0].shape = ir.Shape(before)


def _how(model: ir.Model, pattern: Pattern, scale: float, softcap: float) -> How:
    slopes, biases = (
        None
        if numbers is None
        else add_initializer(model.graph, ir.tensor(np.array(numbers, np.float32)), name)
        for numbers, name in ((pattern.slopes, "alibi_slopes"), (pattern.biases, "distance_bias"))
    )
    return How(scale, softcap, pattern.window, pattern.chunk, None, slopes, biases)


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
    operands = [*folded, how.sinks, how.slopes, how.biases]
    new = make_node(model, "Attention", operands, attributes, name=node.name)
    batch, tokens, _ = dims(folded[0])
    new.outputs[0].shape = ir.Shape([batch, tokens, heads[0].count * heads[2].size])
    insert(node, new)
    return new.outputs[0]
