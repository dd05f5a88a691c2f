"""Places of tokens in their sequence, however an encoder counts them, become an input."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from optc.ir.emit import Emitter
from optc.ir.functions import is_op
from optc.ir.graph import add_initializer, constant, remove_unused
from optc.ir.pipeline.base import PassReport
from optc.passes.canonicalize.dataflow import dims, substitute
from optc.passes.canonicalize.encoders.source import Source
from optc.passes.canonicalize.spelled.region import ForeignError, region_of

#: Tokens of the probes.
_SHORT, _LONG = 7, 12
_ELEMENT_WISE = (
    *("Add", "Sub", "Mul", "Div", "Min", "Max", "Mod", "Where", "Equal"),
    *("Less", "LessOrEqual", "Greater", "GreaterOrEqual"),
)


def number_positions(model: ir.Model, source: Source, report: PassReport) -> ir.Value:
    """Add the input ``position_ids`` i64 [batch, tokens], and let it stand for all numbers that
    are places of tokens in their sequence, or differ from these by a constant.

    Rows that are looked up by one integer for all tokens become constants.
    """
    graph = model.graph
    lead = [source.batch, source.tokens]
    positions = ir.Value(
        name="position_ids", type=ir.TensorType(ir.DataType.INT64), shape=ir.Shape(lead)
    )
    graph.inputs.insert(1, positions)
    for node in reversed(list(graph)):
        for value in node.outputs:
            if value.uses():
                _replace(graph, source, value, positions, report)
    remove_unused(model)
    _restate(graph, source)
    return positions


def _axis_of_tokens(value: ir.Value, source: Source) -> int | None:
    """The axis of tokens of a value whose other axes have the size 1, but for the first one, which
    may be that of sequences; None of others."""
    shape = dims(value)
    if len(shape) < 2 or value.dtype not in (ir.DataType.INT64, ir.DataType.FLOAT):
        return None
    axes = [axis for axis, size in enumerate(shape) if size == source.tokens and axis]
    others = [size for axis, size in enumerate(shape) if axis not in axes]
    alone = len(axes) == 1 and others[0] in (1, source.batch) and set(others[1:]) <= {1}
    return axes[0] if alone else None


def _replace(
    graph: ir.Graph, source: Source, value: ir.Value, positions: ir.Value, report: PassReport
) -> None:
    axis, node = _axis_of_tokens(value, source), value.producer()
    kind = None if axis is None else _counts(source, value)
    if axis is None or kind is None or node is None or _lies_across(value, source):
        return
    is_place, number = kind
    if not is_place:
        _look_up_once(graph, value, number, report)
        return
    emitter = Emitter(graph, f"{value.name}.places")
    new = _emit(emitter, positions, number, value, axis, source)
    graph.insert_after(node, emitter.nodes)
    substitute(value, new)
    report.add("positions")


def _lies_across(value: ir.Value, source: Source) -> bool:
    """True if the first axis of ``value`` meets another one than that of sequences, as where places
    of tokens are subtracted from each other: a row for each sequence would not fit there."""
    rank = len(dims(value))
    for node in value.consumers():
        shape = dims(node.outputs[0])
        meets = is_op(node, *_ELEMENT_WISE) and len(shape) >= rank
        if meets and shape[-rank] not in (1, source.batch):
            return True
    return False


def _emit(
    emitter: Emitter, positions: ir.Value, offset: int, like: ir.Value, axis: int, source: Source
) -> ir.Value:
    """``positions`` + ``offset``, of the type and rank of ``like``, with tokens on ``axis``."""
    new, shape = positions, [source.batch, source.tokens]
    dtype = ir.DataType.INT64
    if offset:
        constant_offset = emitter.constant("offset", np.array(offset, np.int64))
        new = emitter.op("counted", "Add", [new, constant_offset], shape, dtype)
    if like.dtype == ir.DataType.FLOAT:
        dtype = ir.DataType.FLOAT
        new = emitter.op("real", "Cast", [new], shape, to=int(dtype))
    rank = len(dims(like))
    ones = [at for at in range(1, rank) if at != axis]
    if not ones:
        return new
    wide = [source.batch, *(source.tokens if at == axis else 1 for at in range(1, rank))]
    return emitter.op("placed", "Unsqueeze", [new, emitter.integers("axes", ones)], wide, dtype)


def _counts(source: Source, value: ir.Value) -> tuple[bool, int] | None:
    """(True, offset) if ``value`` is places of tokens, (False, integer) if it is one integer; None
    if it is neither."""
    kinds = set()
    for tokens, seed in ((_SHORT, 0), (_LONG, 1)):
        try:
            region = region_of(source.graph, value, None)
            result = source.run(region, tokens, {}, seed=seed)
        except ForeignError:
            return None
        both = np.broadcast_to(result.reshape(len(result), -1), (2, tokens))
        parts = [row[:length] for row, length in zip(both, source.lengths(tokens), strict=True)]
        first = int(parts[0][0])
        if first != parts[0][0]:
            return None
        if all((part == first).all() for part in parts):
            kinds.add((False, first))
        elif all((part == first + np.arange(len(part))).all() for part in parts):
            kinds.add((True, first))
        else:
            return None
    return kinds.pop() if len(kinds) == 1 else None


def _look_up_once(graph: ir.Graph, value: ir.Value, index: int, report: PassReport) -> None:
    for node, at in list(value.uses()):
        table = constant(node.inputs[0]) if is_op(node, "Gather") and at == 1 else None
        if table is None or len(table.shape) != 2 or node.attributes.get_int("axis", 0) != 0:
            continue
        row = ir.tensor(np.ascontiguousarray(table.numpy()[index]))
        substitute(node.outputs[0], add_initializer(graph, row, f"{node.name}.row"))
        report.add("one row for all tokens")


def _restate(graph: ir.Graph, source: Source) -> None:
    """Give values computed once for all sequences a row for each, as the new input has."""
    for node in graph:
        for value in node.outputs:
            shape = dims(value)
            if shape[:1] == [1] and source.tokens in shape[1:]:
                value.shape = ir.Shape([source.batch, *shape[1:]])
