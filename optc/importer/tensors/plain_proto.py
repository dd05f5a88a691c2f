"""ONNX models without what onnx_ir does not read: sparse weights, and maps of classes."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import onnx
from onnx import helper, numpy_helper

from optc.errors import UnsupportedError

_CLASSES = ("classlabels_int64s", "classlabels_strings")


def plain(proto: onnx.ModelProto) -> tuple[str, ...]:
    """Make sparse weights dense, and outputs that map a row's classes to scores tensors of scores,
    as scikit-learn's converter has them beneath, in place.

    Returns:
        Warnings about outputs.

    Raises:
        UnsupportedError: A sparse weight lies in another file.
    """
    for graph in _graphs(proto.graph):
        for sparse in graph.sparse_initializer:
            graph.initializer.append(_dense(sparse))
        graph.ClearField("sparse_initializer")
    return tuple(_scores(proto.graph))


def _graphs(graph: onnx.GraphProto) -> Iterator[onnx.GraphProto]:
    yield graph
    for node in graph.node:
        for attribute in node.attribute:
            for inner in (attribute.g, *attribute.graphs):
                if inner.node:
                    yield from _graphs(inner)


def _dense(sparse: onnx.SparseTensorProto) -> onnx.TensorProto:
    """The tensor of ``sparse``, whose indices are places in a row or one for each axis."""
    name = sparse.values.name
    if onnx.TensorProto.EXTERNAL in (sparse.values.data_location, sparse.indices.data_location):
        raise UnsupportedError(
            "it is sparse and lies in another file",
            where=f"weight {name}",
            hint="save the model with its weights inside",
        )
    values = numpy_helper.to_array(sparse.values)
    places = numpy_helper.to_array(sparse.indices)
    if places.ndim == 2:
        places = np.ravel_multi_index(tuple(places.T), tuple(sparse.dims))
    whole = np.zeros(int(np.prod(sparse.dims)), values.dtype)
    whole[places] = values
    return numpy_helper.from_array(whole.reshape(tuple(sparse.dims)), name)


def _scores(graph: onnx.GraphProto) -> Iterator[str]:
    outputs = {value.name: value for value in graph.output}
    for node in graph.node:
        if node.op_type != "ZipMap" or node.output[0] not in outputs:
            continue
        labels = [
            one.decode("utf-8", "replace") if isinstance(one, bytes) else str(one)
            for attribute in node.attribute
            if attribute.name in _CLASSES
            for one in (*attribute.ints, *attribute.strings)
        ]
        shown, name = ", ".join(labels), node.output[0]
        shape = ["rows", len(labels)]
        outputs[name].CopyFrom(helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, shape))
        node.CopyFrom(helper.make_node("Identity", [node.input[0]], [name], name=node.name))
        yield f"the output {name} is a tensor of scores, of the classes {shown[:200]}, and no maps"
