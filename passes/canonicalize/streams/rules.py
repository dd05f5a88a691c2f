"""Operators over values with axes of streams, on the parts of those values."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from optc.ir.graph import constant, constant_ints, is_constant
from optc.passes.canonicalize.dataflow import axis_of, dims, operand, rank
from optc.passes.canonicalize.fold_tokens import ANY_RANK
from optc.passes.canonicalize.streams.parts import (
    Axes,
    Grid,
    Partition,
    Parts,
    Rule,
    is_number,
)


def _element_wise(partition: Partition, node: ir.Node, axes: Axes) -> Parts | None:
    """The operator on each of the parts, of which some are one for all."""
    size = rank(node.outputs[0]) or 0
    found = [_broadcast(partition, value, size, axes) for value in node.inputs]
    grids = [part.grid for part in found if part is not None]
    if len(grids) < len(found):
        return None
    width = dims(node.outputs[0])[-1] if size - 1 not in axes else 1
    options = {name: attribute.value for name, attribute in node.attributes.items()}
    whole = np.broadcast_arrays(*grids)
    result = np.empty(whole[0].shape, dtype=object)
    for place in np.ndindex(result.shape):
        inputs = [grid[place] for grid in whole]
        result[place] = partition.emit(node.op_type, inputs, width, **options)
    return Parts(result, any(part.stacked for part in found if part is not None))


def _broadcast(partition: Partition, value: ir.Value | None, size: int, axes: Axes) -> Parts | None:
    """Parts of an operand of a result of ``size`` axes, 1 along axes that it has not."""
    own = [axis - size + (rank(value) or 0) for axis in axes]
    held = [axis for axis in own if axis >= 0]
    vector = rank(value) == 1 and is_constant(value) and size - 1 not in axes
    if is_number(value) or vector:
        grid = np.empty((1,) * len(axes), dtype=object)
        grid[...] = value
        return Parts(grid)
    parts = partition.of(value, held)
    if parts is None:
        return None
    lead = (1,) * (len(own) - len(held))
    return Parts(parts.grid.reshape(lead + parts.grid.shape), parts.stacked)


def _transpose(partition: Partition, node: ir.Node, axes: Axes) -> Parts | None:
    order = [node.attributes["perm"].as_ints()[axis] for axis in axes]
    parts = partition.of(node.inputs[0], sorted(order))
    if parts is None:
        return None
    return Parts(parts.grid.transpose([sorted(order).index(axis) for axis in order]), parts.stacked)


def _concat(partition: Partition, node: ir.Node, axes: Axes) -> Parts | None:
    """Values that are stacked."""
    axis = axis_of(node, node.outputs[0], 0)
    found = [partition.of(value, axes) for value in node.inputs]
    grids = [part.grid for part in found if part is not None]
    if axis not in axes or len(grids) < len(found):
        return None
    return Parts(np.concatenate(grids, axis=axes.index(axis)), True)


def _unsqueeze(partition: Partition, node: ir.Node, axes: Axes) -> Parts | None:
    size, new = rank(node.outputs[0]) or 0, constant_ints(node.inputs[1])
    if new is None:
        return None
    added = sorted(axis % size for axis in new)
    held = [axis - sum(one < axis for one in added) for axis in axes if axis not in added]
    parts = partition.of(node.inputs[0], held)
    if parts is None:
        return None
    places = [index for index, axis in enumerate(axes) if axis in added]
    return Parts(np.expand_dims(parts.grid, places), parts.stacked)


def _squeeze(partition: Partition, node: ir.Node, axes: Axes) -> Parts | None:
    size = rank(node.inputs[0]) or 0
    gone = constant_ints(node.inputs[1]) if len(node.inputs) > 1 else None
    if gone is None or len(gone) != 1:
        return None
    return _taken(partition, operand(node, 0), axes, gone[0] % size, 0)


def _gather(partition: Partition, node: ir.Node, axes: Axes) -> Parts | None:
    """One of the parts, or some."""
    source, index = operand(node, 0), constant(node.inputs[1])
    axis = axis_of(node, source, 0)
    if index is None or len(index.shape) > 1:
        return None
    if not index.shape:
        return _taken(partition, source, axes, axis, int(index.numpy()))
    parts = partition.of(source, axes) if axis in axes else None
    if parts is None:
        return None
    return Parts(parts.grid.take(index.numpy(), axes.index(axis)), parts.stacked)


def _taken(
    partition: Partition, source: ir.Value, axes: Axes, axis: int, index: int
) -> Parts | None:
    """One place along an axis of ``source`` that the result has not."""
    held = sorted([*(one + (one >= axis) for one in axes), axis])
    parts = partition.of(source, held)
    if parts is None:
        return None
    return Parts(
        parts.grid.take([index], held.index(axis)).squeeze(held.index(axis)), parts.stacked
    )


def _slice(partition: Partition, node: ir.Node, axes: Axes) -> Parts | None:
    size = rank(node.inputs[0]) or 0
    given = [constant_ints(value) for value in node.inputs[1:]]
    numbers = [ints for ints in given if ints is not None]
    if len(numbers) < 3 or len(numbers) < len(given) or any(len(one) != 1 for one in numbers):
        return None
    (start,), (stop,), (axis,), *step = numbers
    parts = partition.of(node.inputs[0], axes) if axis % size in axes else None
    if parts is None:
        return None
    kept: list[slice] = [slice(None)] * len(axes)
    kept[axes.index(axis % size)] = slice(start, stop, step[0][0] if step else 1)
    return Parts(parts.grid[tuple(kept)], parts.stacked)


def _scatter(partition: Partition, node: ir.Node, axes: Axes) -> Parts | None:
    """Some of the parts are others."""
    index = constant(node.inputs[1])
    if index is None or len(index.shape) != 2 or index.shape[1] != 1 or 0 not in axes:
        return None
    if node.attributes.get_string("reduction", "none") != "none":
        return None
    whole, some = partition.of(node.inputs[0], axes), partition.of(node.inputs[2], axes)
    if whole is None or some is None:
        return None
    grid = whole.grid.copy()
    grid[index.numpy()[:, 0]] = some.grid
    return Parts(grid, whole.stacked or some.stacked)


def _repeat(partition: Partition, node: ir.Node, axes: Axes) -> Parts | None:
    """``Expand`` and ``Tile`` along axes of streams alone."""
    source, sizes = operand(node, 0), dims(node.outputs[0])
    parts = _broadcast(partition, source, len(sizes), axes)
    kept = dims(source)[-1] == sizes[-1] or len(sizes) - 1 in axes
    if parts is None or not kept or is_number(source):
        return None
    shape = [int(str(sizes[axis])) for axis in axes]
    if any(had not in (1, has) for had, has in zip(parts.grid.shape, shape, strict=True)):
        return None
    return Parts(np.broadcast_to(parts.grid, shape), parts.stacked)


def _matmul(partition: Partition, node: ir.Node, axes: Axes) -> Parts | None:
    """A layer on each part; or a mixture of parts, where one operand's numbers weigh the other."""
    left, right = operand(node, 0), operand(node, 1)
    if rank(right) == 2 and is_constant(right) and (rank(left) or 0) - 1 not in axes:
        return _each(partition, node, axes, dims(right)[-1])
    if rank(left) != 4 or rank(right) != 4:
        return None
    first = partition.of(left, (2, 3) if 2 in axes else (3,))
    second = partition.of(right, (2, 3) if 3 in axes else (2,))
    if first is None or second is None or not axes:
        return None
    rows = first.grid if 2 in axes else first.grid[np.newaxis]
    columns = second.grid if 3 in axes else second.grid[:, np.newaxis]
    width = 1 if len(axes) == 2 else dims(node.outputs[0])[5 - axes[0]]
    result: Grid = np.empty((len(rows), columns.shape[1]), dtype=object)
    for row, column in np.ndindex(result.shape):
        pairs = zip(rows[row], columns[:, column], strict=True)
        result[row, column] = partition.total(
            [partition.emit("Mul", [one, other], width) for one, other in pairs]
        )
    shape = [int(str(dims(node.outputs[0])[axis])) for axis in axes]
    return Parts(result.reshape(shape), first.stacked or second.stacked)


def _reduce(partition: Partition, node: ir.Node, axes: Axes) -> Parts | None:
    """A sum or mean over streams, or over the channels of each."""
    source, over = operand(node, 0), constant_ints(node.inputs[1])
    size, keeps = rank(source) or 0, node.attributes.get_int("keepdims", 1) == 1
    if over is None or len(over) != 1:
        return None
    axis = over[0] % size
    if axis == size - 1 and axis not in axes:
        return _each(partition, node, axes, 1) if keeps else None
    held = axes if keeps else tuple(sorted([*(one + (one >= axis) for one in axes), axis]))
    parts = partition.of(source, held) if axis in held else None
    if parts is None:
        return None
    moved = np.moveaxis(parts.grid, held.index(axis), -1)
    result: Grid = np.empty(moved.shape[:-1], dtype=object)
    for place in np.ndindex(result.shape):
        result[place] = partition.total(list(moved[place]), node.op_type == "ReduceMean")
    return Parts(np.expand_dims(result, held.index(axis)) if keeps else result, parts.stacked)


def _each(partition: Partition, node: ir.Node, axes: Axes, width: int | str | None) -> Parts | None:
    """The operator, over the last axis, on each part."""
    parts = partition.of(node.inputs[0], axes)
    if parts is None:
        return None
    options = {name: attribute.value for name, attribute in node.attributes.items()}
    result: Grid = np.empty(parts.grid.shape, dtype=object)
    for place in np.ndindex(result.shape):
        inputs = [parts.grid[place], *node.inputs[1:]]
        result[place] = partition.emit(node.op_type, inputs, width, **options)
    return Parts(result, parts.stacked)


def _reshape(partition: Partition, node: ir.Node, axes: Axes) -> Parts | None:
    """Channels that are split, or parts whose channels are put behind one another."""
    source, result = operand(node, 0), node.outputs[0]
    had, has = dims(source), dims(result)
    if had[:2] != has[:2] or None in had[:2]:
        return None
    if len(had) == 3 and len(has) == 4 and axes in ((2,), (2, 3)):
        columns = partition.of(source, ())
        size = 1 if 3 in axes else has[3]
        if columns is None or not isinstance(size, int):
            return None
        grid = partition.slices(source, size)
        return Parts(grid.reshape([int(str(has[axis])) for axis in axes]))
    if len(had) == 4 and len(has) == 3 and not axes:
        parts = partition.of(source, (2,))
        if parts is None:
            return None
        values = list(parts.grid)
        whole = partition.emit("Concat", values, has[2], axis=-1) if len(values) > 1 else values[0]
        return Parts(np.array(whole, dtype=object), parts.stacked)
    return None


RULES: dict[str, Rule] = {
    **dict.fromkeys(ANY_RANK - {"MatMul"}, _element_wise),
    "Transpose": _transpose,
    "Concat": _concat,
    "Unsqueeze": _unsqueeze,
    "Squeeze": _squeeze,
    "Gather": _gather,
    "Slice": _slice,
    "ScatterND": _scatter,
    "Expand": _repeat,
    "Tile": _repeat,
    "MatMul": _matmul,
    "ReduceMean": _reduce,
    "ReduceSum": _reduce,
    "Reshape": _reshape,
}
