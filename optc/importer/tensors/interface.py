"""The interface of a graph of named tensors: names, types, and the bounds of its dimensions."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import onnx_ir as ir

from optc.errors import InputError
from optc.importer.tensors.imported import dtype_of
from optc.ir.forms.batched import BatchedTensors
from optc.runtime.executable.tensors_interface import DimRange, TensorsInterface, TensorSpec
from optc.system.sources.dim import MOST, Dim


def describe(model: ir.Model, dims: Iterable[Dim]) -> TensorsInterface:
    """The interface of ``model``, which gets the form of batched tensors.

    Args:
        model: Its dynamic dimensions that have no name get that of their tensor and axis.
        dims: Bounds by name. A dimension of one size becomes that size in the graph.

    Raises:
        InputError: No tensor has a dimension of a name in ``dims``.
        UnsupportedError: A tensor's elements are no numbers.
    """
    bounds = {dim.name: dim for dim in dims}
    _name_dims(model)
    _fix_sizes(model, {d.name: d.least for d in bounds.values() if d.least == d.most})
    for what, values in (("inputs", model.graph.inputs), ("outputs", model.graph.outputs)):
        if not values:
            raise InputError(f"the graph has no {what}", where=model.graph.name or "graph")
    inputs = tuple(_spec(value) for value in model.graph.inputs)
    outputs = tuple(_spec(value) for value in model.graph.outputs)
    every = [dim for one in (*inputs, *outputs) for dim in one.dims]
    names = list(dict.fromkeys(dim for dim in every if isinstance(dim, str)))
    unknown = [d.name for d in bounds.values() if d.name not in names and d.least != d.most]
    if unknown:
        raise InputError(
            f"no input or output has the dimension {unknown[0]!r}",
            where="dimensions",
            hint=f"they have {', '.join(names) or 'none'}",
        )
    found = {name: bounds.get(name, Dim("any", 0, MOST)) for name in names}
    symbols = {name: DimRange(dim.least, dim.most) for name, dim in found.items()}
    BatchedTensors.describe(model).attach(model)
    return TensorsInterface(inputs, outputs, symbols)


def _name_dims(model: ir.Model) -> None:
    for value in (*model.graph.inputs, *model.graph.outputs):
        if value.shape is None:
            raise InputError(
                "it has no shape",
                where=f"tensor {value.name}",
                hint="run ONNX's shape inference on the file, or export it with shapes",
            )
        named = [
            f"{value.name}_{axis}" if _is_nameless(dim) else dim
            for axis, dim in enumerate(value.shape)
        ]
        value.shape = ir.Shape(named)


def _is_nameless(dim: int | ir.SymbolicDim) -> bool:
    """Some exporters write -1 for a dynamic dimension, or a mark such as ``?`` for all of them."""
    if isinstance(dim, int):
        return dim < 0
    return dim.value is None or not any(letter.isalnum() for letter in str(dim.value))


def _fix_sizes(model: ir.Model, sizes: Mapping[str, int]) -> None:
    """Write sizes for dimensions of one size, so that constant folding sees them."""
    if not sizes:
        return
    for value in _values(model.graph):
        if value.shape is not None:
            fixed = [
                dim if isinstance(dim, int) else sizes.get(str(dim.value), dim)
                for dim in value.shape
            ]
            value.shape = ir.Shape(fixed)


def _values(graph: ir.Graph) -> Sequence[ir.Value]:
    return [*graph.inputs, *(out for node in graph for out in node.outputs)]


def _spec(value: ir.Value) -> TensorSpec:
    dims = tuple(dim if isinstance(dim, int) else str(dim.value) for dim in value.shape or ())
    return TensorSpec(str(value.name), dtype_of(value), dims)
