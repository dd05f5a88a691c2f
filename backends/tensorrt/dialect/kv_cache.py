"""In-place writes of keys and values: TensorScatter from a graph input to a graph output."""

from __future__ import annotations

from collections.abc import Iterator

import onnx_ir as ir

_TYPES = (ir.DataType.FLOAT, ir.DataType.FLOAT16, ir.DataType.BFLOAT16)


def check_tensor_scatter(node: ir.Node) -> Iterator[str]:
    """Problems of a TensorScatter: the cache must be an input, its successor an output, of
    [B, heads, length, width] with only the batch dynamic."""
    cache = node.inputs[0]
    if cache is None or not cache.is_graph_input():
        yield "the cache must be an input of the graph, else there is no kernel"
    if not node.outputs[0].is_graph_output():
        yield "the written cache must be an output of the graph, else there is no kernel"
    if cache is None:
        return
    if cache.dtype is not None and cache.dtype not in _TYPES:
        yield f"a cache of {cache.dtype.name.lower()} is not implemented, only float types are"
    shape = cache.shape
    if shape is None or len(shape) != 4 or not all(isinstance(dim, int) for dim in shape[1:]):
        yield f"the cache is {shape}, it must be [B, heads, length, width], all but B static"
    if node.attributes.get_int("axis", -2) not in (-2, 2):
        yield "only the axis -2 is implemented"


def check_scatter(node: ir.Node) -> Iterator[str]:
    """Other scatters copy what they write to."""
    data = node.inputs[0]
    if data is not None and data.is_graph_input():
        yield "it would copy the whole of a graph input each time; use TensorScatter"
