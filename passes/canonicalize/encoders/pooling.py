"""Pooling of an encoder's rows, and normalization of what it gives, by probing."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import onnx_ir as ir

from optc.ir.functions import is_op, make_node
from optc.ir.graph import add_initializer, is_constant
from optc.ir.pipeline.base import PassReport
from optc.passes.canonicalize.dataflow import dims, emit, insert, substitute
from optc.passes.canonicalize.encoders.source import Array, Source
from optc.passes.canonicalize.spelled.region import ForeignError, region_of

#: Tokens of a probe.
_TOKENS = 9
#: First rows of a sequence that a pooling may leave out, as those that are no patches, and one.
_MOST_SKIPPED = 16
#: What values of rows come from: pooling begins behind them.
_ROWS = ("LayerNormalization", "RMSNormalization", "MatMul", "Gemm", "Attention")
#: By name, what pooling makes of a sequence's rows [n, D].
_POOLED: dict[str, Callable[[Array], Array]] = {
    "mean": lambda rows: rows.mean(axis=0),
    "first": lambda rows: rows[0],
    "last": lambda rows: rows[-1],
    "max": lambda rows: rows.max(axis=0),
}
#: Added to the mean square of what is divided by its length: zero stays zero.
_NOTHING = 1e-24


def find_pooling(
    model: ir.Model, source: Source, starts: ir.Value, report: PassReport
) -> list[ir.Value]:
    """Values [batch, D] made of rows [batch, tokens, D] become results of ``optc::PoolRows``."""
    pooled: list[ir.Value] = []
    for node in list(model.graph):
        value = node.outputs[0]
        shape = dims(value)
        if len(shape) != 2 or shape[0] != source.batch or value.dtype != ir.DataType.FLOAT:
            continue
        behind = (_rows_behind(value, source), _nearest_rows(value, source))
        for rows in dict.fromkeys(rows for rows in behind if rows is not None):
            found = _mode(source, value, rows)
            if found is not None:
                break
        else:
            continue
        mode, skip = found
        attributes: dict[str, int | float | str] = {"mode": mode}
        if skip:
            attributes["skip"] = skip
        new = make_node(model, "PoolRows", [rows, starts], attributes, name=f"{node.name}.pool")
        new.outputs[0].shape = value.shape
        insert(node, new)
        substitute(value, new.outputs[0])
        pooled.append(new.outputs[0])
        report.add(f"pooling, {mode}")
    return pooled


def _rows_behind(value: ir.Value, source: Source) -> ir.Value | None:
    """The only value of rows [batch, tokens, D] that ``value`` is made of."""
    found: set[ir.Value] = set()
    stack, seen = [value], {value}
    while stack:
        one = stack.pop()
        node = one.producer()
        if node is None:
            continue
        if is_op(node, *_ROWS) or node.domain:
            found.add(one)
            continue
        for read in node.inputs:
            if read is not None and read not in seen and not is_constant(read):
                seen.add(read)
                if not is_op(node, "Shape"):
                    stack.append(read)
    rows = found.pop() if len(found) == 1 else None
    return rows if rows is not None and dims(rows)[:2] == [source.batch, source.tokens] else None


def _nearest_rows(value: ir.Value, source: Source) -> ir.Value | None:
    """The first value of rows on the way back: those of sums, behind which no norm stands."""
    lead: list[int | str | None] = [source.batch, source.tokens]
    while dims(value)[:2] != lead:
        node = value.producer()
        read = [] if node is None else [v for v in node.inputs if v is not None]
        computed = [v for v in read if not is_constant(v)]
        if len(computed) != 1:
            return None
        value = computed[0]
    return value if len(dims(value)) == 3 else None


def _mode(source: Source, value: ir.Value, rows: ir.Value) -> tuple[str, int] | None:
    """The mode, and the first rows that do not count."""
    width = dims(rows)[-1]
    if dims(value)[-1] != width or not isinstance(width, int) or rows.dtype != value.dtype:
        return None
    tokens = source.size(_TOKENS)
    given = np.random.default_rng(2).standard_normal((2, tokens, width)).astype(np.float32)
    try:
        region = region_of(source.graph, value, rows)
        result = source.run(region, tokens, {rows: given})
    except ForeignError:
        return None
    lengths = source.lengths(tokens)
    for skip in range(min(_MOST_SKIPPED, *lengths)):
        for mode, pool in _POOLED.items():
            expected = [pool(one[skip:n]) for one, n in zip(given, lengths, strict=True)]
            if result.shape == (2, width) and np.allclose(result, expected, rtol=1e-4, atol=1e-6):
                return mode, skip
    return None


def find_normalization(model: ir.Model, source: Source, report: PassReport) -> None:
    """Values [batch, D] over their length become RMSNormalization with a scale of 1 / √D."""
    for node in list(model.graph):
        value = node.outputs[0]
        shape = dims(value)
        if not is_op(node, "Div") or len(shape) != 2 or shape[0] != source.batch:
            continue
        x, width = node.inputs[0], shape[1]
        if x is None or not isinstance(width, int) or not _is_unit(source, value, x, width):
            continue
        scale = np.full(width, width**-0.5, np.float32)
        operands: list[ir.Value | None] = [
            x,
            add_initializer(model.graph, ir.tensor(scale), f"{node.name}.unit"),
        ]
        options = {"axis": -1, "epsilon": _NOTHING}
        substitute(value, emit(node, "RMSNormalization", operands, value, options))
        report.add("unit length")


def _is_unit(source: Source, value: ir.Value, x: ir.Value, width: int) -> bool:
    given = np.random.default_rng(3).standard_normal((2, width)).astype(np.float32)
    try:
        result = source.run(region_of(source.graph, value, x), source.size(_TOKENS), {x: given})
    except ForeignError:
        return False
    expected = given / np.linalg.norm(given, axis=1, keepdims=True)
    return result.shape == given.shape and np.allclose(result, expected, rtol=1e-5)
