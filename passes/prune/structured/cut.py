"""Takes units of channels out of a graph: rows, columns, vectors, numbers of heads, shapes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import numpy as np
import numpy.typing as npt
import onnx_ir as ir

from optc.ir.functions import DOMAIN, attributes_of, ensure_function
from optc.ir.graph import constant, constant_ints, int_initializer, remove_unused, width
from optc.ir.linear import find_linear, find_linears
from optc.ir.pipeline.base import PassReport
from optc.ir.weights import Array, LazyWeight, RowReader
from optc.passes.prune.structured.channels import Channels
from optc.passes.prune.structured.decisions import Decisions

Indices = npt.NDArray[np.intp]


def slices_of(size: int, units: int, kept: Indices) -> Indices:
    """Indices of the elements of units ``kept`` [n], of ``units``, on an axis of ``size``."""
    each = size // units
    found: Indices = (kept[:, None] * each + np.arange(each)).ravel()
    return found


def cut_channels(model: ir.Model, channels: Channels, kept: Indices) -> None:
    """Leave the units ``kept`` [n], ascending, of ``channels`` in ``model``.

    Columns of the readers are cut as they are: refitted weights are set afterwards.
    """
    units = channels.units
    vectors = {value: width(value) or 0 for value in channels.vectors}
    _cut_rows(model, channels, kept)
    for linear in channels.linears:
        columns = slices_of(linear.weight.rows_shape[1], units, kept)
        set_weight(linear.initializer, cut_columns(linear.weight, columns))
    for vector, size in vectors.items():
        _set_vector(vector, slices_of(size, units, kept))
    for node in channels.heads:
        _set_heads(model, node, units, len(kept))
    for value, size in channels.values.items():
        _set_width(value, size // units * len(kept))
    remove_unused(model)  # sizes of Splits


def _cut_rows(model: ir.Model, channels: Channels, kept: Indices) -> None:
    """Cut what gives the values; several parts of one layer at once."""
    stays: dict[ir.Node, npt.NDArray[np.bool_]] = {}
    for part in channels.rows:
        rows = stays.setdefault(part.matmul, np.ones(part.linear.weight.rows_shape[0], bool))
        rows[part.start : part.start + part.size] = False
        rows[part.start + slices_of(part.size, channels.units, kept)] = True
    splits = {part.split: part.matmul for part in channels.rows if part.split is not None}
    for split, matmul in splits.items():
        _resize_split(model, split, stays[matmul])
    for matmul, mask in stays.items():
        linear, left = find_linear(matmul), np.flatnonzero(mask)
        if linear is None:
            raise ValueError(f"{matmul.name}: not a linear layer any more")
        if linear.bias is not None:
            _set_vector(linear.bias, left)
        set_weight(linear.initializer, cut_rows(linear.weight, left))
        for node in linear.nodes:
            _set_width(node.outputs[0], len(left))


def _resize_split(model: ir.Model, split: ir.Node, stays: npt.NDArray[np.bool_]) -> None:
    bounds = np.cumsum(constant_ints(split.inputs[1]) or [0])
    sizes = [int(part.sum()) for part in np.split(stays, bounds[:-1])]
    split.replace_input_with(1, int_initializer(model.graph, sizes, f"{split.name}.sizes"))


def _set_heads(model: ir.Model, node: ir.Node, units: int, kept: int) -> None:
    for name in ("num_heads", "kv_num_heads"):
        if name in node.attributes:
            heads = node.attributes[name].as_int() // units * kept
            node.attributes[name] = ir.AttrInt64(name, heads)
    if node.domain == DOMAIN:
        present = [value is not None for value in node.inputs]
        node.overload = ensure_function(model, node.op_type, attributes_of(node), present)


def _set_vector(value: ir.Value, kept: Indices) -> None:
    tensor = constant(value)
    if tensor is None:
        raise ValueError(f"{value.name} is no constant")
    array = np.ascontiguousarray(tensor.numpy()[..., kept])
    value.const_value = ir.tensor(array, name=value.name)
    value.shape = ir.Shape(array.shape)


def _set_width(value: ir.Value, size: int) -> None:
    if value.shape is not None:
        value.shape = ir.Shape([*list(value.shape)[:-1], size])


def set_weight(initializer: ir.Value, weight: LazyWeight) -> None:
    """Give an initializer another weight, of another shape or not."""
    initializer.const_value = weight
    initializer.shape = ir.Shape(weight.shape.numpy())
    initializer.dtype = weight.dtype


def cut_rows(weight: LazyWeight, rows: Indices) -> LazyWeight:
    """Rows [n] of W [N, K], ascending, read as they are wanted."""

    def read(start: int, stop: int) -> Array:
        wanted = rows[start:stop]
        if not len(wanted):
            return weight.read_rows(0, 0)
        first = int(wanted[0])
        return np.ascontiguousarray(weight.read_rows(first, int(wanted[-1]) + 1)[wanted - first])

    return _like(weight, read, (len(rows), *weight.rows_shape[1:]))


def cut_columns(weight: LazyWeight, columns: Indices) -> LazyWeight:
    """Columns [n] of W [N, K], ascending."""

    def read(start: int, stop: int) -> Array:
        return np.ascontiguousarray(weight.read_rows(start, stop)[:, columns])

    return _like(weight, read, (weight.rows_shape[0], len(columns)))


def _like(weight: LazyWeight, read: RowReader, shape: tuple[int, ...]) -> LazyWeight:
    return LazyWeight(
        read,
        shape,
        weight.dtype,
        weight.name or "",
        transposed=weight.transposed,
    )


def given_rows(weight: LazyWeight, array: Array) -> LazyWeight:
    """A weight of the rows ``array`` [N, K], float32, oriented and called as ``weight``."""
    return LazyWeight(
        lambda start, stop: array[start:stop],
        array.shape,
        ir.DataType.FLOAT,
        weight.name or "",
        transposed=weight.transposed,
    )


def refit(model: ir.Model, weights: Mapping[str, Array]) -> None:
    """Give linear layers other weights [N, K], by the names of their initializers."""
    for linear in find_linears(model):
        if (array := weights.get(linear.name)) is not None:
            if array.shape != linear.weight.rows_shape:
                shape = linear.weight.rows_shape
                raise ValueError(f"{linear.name}: {array.shape} for a weight {shape}")
            set_weight(linear.initializer, given_rows(linear.weight, array))


def cut_all(
    model: ir.Model, channels: Iterable[Channels], found: Decisions, report: PassReport
) -> None:
    """Leave the units that were decided on, and give layers the weights that were fitted."""
    # rows of these are cut afterwards
    refit(model, {n: w for n, w in found.weights.items() if n not in found.kept})
    for one in channels:
        kept = found.kept.get(one.name)
        if kept is not None and len(kept) < one.units:
            cut_channels(model, one, kept)
            report.add(one.kind, one.units - len(kept))
    refit(model, {n: w for n, w in found.weights.items() if n in found.kept})
