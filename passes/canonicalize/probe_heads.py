"""`probe-heads`: queries, keys and values become columns of a projection and a rotary operator,
whatever operators move and turn them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np
import onnx_ir as ir

from optc.ir.emit import Emitter, dims_of
from optc.ir.functions import DOMAIN, is_op
from optc.ir.graph import add_initializer, int_initializer, remove_unused
from optc.ir.pipeline.base import ALONE, Pass, PassContext, PassReport
from optc.ir.pipeline.phase import Effect, Phase
from optc.passes.canonicalize.dataflow import (
    dims,
    emit,
    miss,
    operand,
    orders,
    producer,
    rank,
    substitute,
)
from optc.passes.canonicalize.head_layer_norms import heads_of_mean, is_centred
from optc.passes.canonicalize.heads import Heads, heads_of, split
from optc.passes.canonicalize.probing.columns import take_heads
from optc.passes.canonicalize.probing.evaluate import Probes, Unreadable
from optc.passes.canonicalize.probing.layout import Rotary, common_order, rotary_of, shared_first
from optc.passes.canonicalize.probing.read import Reading, read_region
from optc.passes.canonicalize.probing.region import (
    TRIG,
    Dependence,
    Region,
    dependence,
    region_of,
)

Tables = dict[tuple[tuple[float, ...], float], tuple[ir.Value, ir.Value]]


@dataclass(frozen=True)
class ProbeHeads(Pass):
    """Traces the operands of attention, head norms and rotary operators back to a projection.

    The part in between is run on numbers that show what it does (package ``probing``), so that it
    may be spelled in any way:
    1. Heads of a fused projection, interleaved in any order -> a linear layer for each of q, k and
       v, with rows of the fused weight.
    2. Rotation of pairs of dimensions by angles of positions, of all or some dimensions, pairs
       being halves apart, neighbours or anything else -> ``RotaryEmbedding``. An order of
       dimensions that q and k have in common goes into the rows of their weights.
    3. A factor a token on heads -> the same on [B, S, heads * size].
    4. Heads that join columns of two projections, one of which they may share, as in multi-head
       latent attention (DeepSeek-V2, arXiv 2405.04434) -> ``optc::HeadConcat``.
    Operands that are no more than split into heads are left alone.

    Attention that was spelled out is found behind this step, with operands [B, S, heads * size]:
    the step runs once more, and reads those that are still made through an axis of heads.
    """

    name: ClassVar[str] = "probe-heads"
    phase: ClassVar[Phase] = Phase.CANONICAL
    effects: ClassVar[Effect] = Effect.KEEPS_PARAMETERS

    def run(self, model: ir.Model, context: PassContext = ALONE) -> PassReport:
        """Rewrite ``model`` in place."""
        report = PassReport()
        work = _Work(model, dependence(model.graph), model.graph[0])
        for node in list(model.graph):
            if is_op(node, "Attention", domain=DOMAIN) or is_op(node, "Attention"):
                _attention(work, node, report)
            elif is_op(node, "RotaryEmbedding") or is_op(node, "HeadRMSNorm", domain=DOMAIN):
                heads = node.attributes.get_int("num_heads", 0)
                folded = rank(node.inputs[0]) == 3 and not is_centred(operand(node, 0))
                if heads and folded:
                    _operator(work, node, heads, report)
            elif heads := heads_of_mean(node):
                _operator(work, node, heads, report)
        remove_unused(model)
        return report


@dataclass
class _Work:
    """The state that the rewriting of one model shares.

    Attributes:
        model: The model.
        depends: What depends on positions.
        start: A node before which tables are computed.
        tables: cos and sin [B, S, r/2] of frequencies and factors.
    """

    model: ir.Model
    depends: Dependence
    start: ir.Node
    tables: Tables = field(default_factory=dict)


@dataclass(frozen=True)
class _Part:
    """An operand with heads.

    Attributes:
        heads: How it holds heads; None if it does not.
        region: What it is made of.
        factor: [B, S] that the region's result is multiplied by, or None.
    """

    heads: Heads | None
    region: Region
    factor: ir.Value | None = None

    @property
    def is_plain(self) -> bool:
        """True if it is no more than split into heads."""
        return self.factor is None and self.region.is_plain


def _attention(work: _Work, node: ir.Node, report: PassReport) -> None:
    """q and k together, then v."""
    for group, roles in (((0, 1), "qk"), ((2,), "v")):
        values = [operand(node, index) for index in group]
        parts = [_attention_part(work, node, index) for index in group]
        if all(part.is_plain for part in parts):
            continue
        try:
            read = [_read(work, part) for part in parts]
            size = read[0].columns.shape[1]
            order = common_order(read) if roles == "qk" else [*range(size)]
            order = shared_first(read, order)
            folded = [
                _folded(work, node, part, reading, order, role)
                for part, reading, role in zip(parts, read, roles, strict=True)
            ]
        except Unreadable as refusal:
            miss(report, node, f"its {' or '.join(roles)} is not made in a way I know: {refusal}")
            continue
        for index, value, part in zip(group, folded, parts, strict=True):
            if part.heads is None:
                raise RuntimeError("a region without heads was read")
            whole = rank(values[0]) == 4
            node.replace_input_with(index, split(node, value, part.heads) if whole else value)
        report.add("rotary" if any(r.turn for r in read) else "columns", len(group))


def _attention_part(work: _Work, node: ir.Node, index: int) -> _Part:
    """Operand ``index`` of attention."""
    value = operand(node, index)
    name = "kv_num_heads" if index else "num_heads"
    count = node.attributes.get_int(name, 0)
    width = dims(value)[-1] if rank(value) == 3 else None
    if not count or not isinstance(width, int):
        return _part(work, value)
    region = region_of(value, work.depends)
    through_heads = any((rank(v) or 0) > 3 for v in region.moving)
    heads = Heads(count, width // count, tokens_last=False)
    return _Part(heads, region if through_heads else Region(value, [value]))


def _operator(work: _Work, node: ir.Node, heads: int, report: PassReport) -> None:
    """The operand of a head norm or a rotary operator."""
    value = operand(node, 0)
    width = dims(value)[-1]
    size = width // heads if isinstance(width, int) else 0
    part = _Part(Heads(heads, size, tokens_last=False), region_of(value, work.depends))
    if part.is_plain:
        return
    try:
        reading = _read(work, part)
        result = _folded(work, node, part, reading, [*range(size)], "heads")
    except Unreadable as refusal:
        miss(report, node, f"its heads are not made in a way I know: {refusal}")
        return
    if heads_of_mean(node):  # the means are taken off the same value
        substitute(value, result)
    else:
        node.replace_input_with(0, result)
    report.add("rotary" if reading.turn else "columns")


def _part(work: _Work, value: ir.Value) -> _Part:
    """An operand of attention."""
    factor = None
    swap = producer(value, "Transpose")
    node = producer(value, "Mul") or (swap and producer(operand(swap, 0), "Mul"))
    for x, other in orders(node) if node is not None else ():
        if other in work.depends.of_positions and dims(other)[-1:] == [1]:
            factor = _of_tokens_alone(other)
            if factor is not None:
                value = x if producer(value, "Mul") else _swapped(swap, x, value)
    return _Part(heads_of(value), region_of(value, work.depends), factor)


def _swapped(swap: ir.Node | None, x: ir.Value, like: ir.Value) -> ir.Value:
    """``x``, axes exchanged as ``swap`` does."""
    if swap is None:
        return x
    perm = {"perm": list(swap.attributes["perm"].as_ints())}
    return emit(swap, "Transpose", [x], like, perm)


def _of_tokens_alone(value: ir.Value) -> ir.Value | None:
    """The value [B, S] that ``value`` [B, 1, S, 1] is, or [B, S, 1, 1]."""
    while rank(value) != 2:
        node = producer(value, "Unsqueeze", "Reshape", "Transpose", "Squeeze", "Identity")
        if node is None:
            return None
        value = operand(node, 0)
    return value


def _read(work: _Work, part: _Part) -> Reading:
    """Run an operand's region.

    Raises:
        Unreadable: It cannot be read.
    """
    if part.heads is None:
        raise Unreadable(f"its shape is {dims(part.region.result)}, not heads")
    if part.region.reason:
        raise Unreadable(part.region.reason)
    return read_region(Probes(work.model, part.region, work.depends), part.heads)


def _folded(
    work: _Work, node: ir.Node, part: _Part, reading: Reading, order: list[int], role: str
) -> ir.Value:
    """The operand [B, S, heads * size], its dimensions in ``order``, made anew before ``node``.

    Raises:
        Unreadable: Columns cannot be taken, or no rotary operator turns them so.
    """
    if part.heads is None:
        raise Unreadable("it comes from no projection")
    x = take_heads(work.model, node, part.region.sources, reading.columns[:, order], role)
    if reading.factor != 1.0:
        x = emit(node, "Mul", [x, _number(work.model, reading.factor)], x)
    if reading.turn is not None:
        rotary = rotary_of(reading.turn, order)
        if rotary is None:
            raise Unreadable("no rotary operator turns its dimensions")
        options = {
            "num_heads": part.heads.count,
            "rotary_embedding_dim": 2 * len(rotary.frequencies),
            "interleaved": int(rotary.interleaved),
        }
        x = emit(node, "RotaryEmbedding", [x, *_tables(work, rotary)], x, options)
    if part.factor is not None:
        axis = int_initializer(work.model.graph, [-1], "last_axis")
        lead = dims(part.factor)
        factor = emit(node, "Unsqueeze", [part.factor, axis], part.factor, None, [*lead, 1])
        x = emit(node, "Mul", [x, factor], x)
    return x


def _number(model: ir.Model, number: float) -> ir.Value:
    return add_initializer(model.graph, ir.tensor(np.float32(number)), "factor")


def _tables(work: _Work, rotary: Rotary) -> tuple[ir.Value, ir.Value]:
    """cos and sin [B, S, r/2], once for all layers."""
    key = rotary.frequencies, rotary.factor
    if key not in work.tables:
        emitter = Emitter(work.model.graph, f"rotary{len(work.tables)}")
        positions = work.depends.positions
        lead = dims_of(positions) or []
        numbers = emitter.constant("frequencies", np.array(rotary.frequencies, np.float32))
        shape = [*lead, len(rotary.frequencies)]
        real = emitter.op("real", "Cast", [positions], lead, to=int(ir.DataType.FLOAT))
        last = emitter.integers("last", [-1])
        column = emitter.op("column", "Unsqueeze", [real, last], [*lead, 1])
        angle = emitter.op("angle", "Mul", [column, numbers], shape)
        both = [emitter.op(kind.lower(), kind, [angle], shape) for kind in TRIG]
        if rotary.factor != 1.0:
            factor = emitter.constant("factor", np.array(rotary.factor, np.float32))
            both = [emitter.op(f"{v.name}", "Mul", [v, factor], shape) for v in both]
        work.model.graph.insert_before(work.start, emitter.nodes)
        work.tables[key] = (both[0], both[1])
    return work.tables[key]
