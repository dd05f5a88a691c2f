"""A layer that drafts by a model's hidden states, in the model's own dense form.

It is the model cut behind its first layer, with other weights in that layer and in the last norm,
and with another value where the layer reads embedded tokens (EAGLE: Li et al., 2024, arXiv
2401.15077; norms before the projection: EAGLE-3, Li et al., 2025, arXiv 2503.01840):

    x[j] = [RMSNorm(embedding[token[j]]), RMSNorm(features[j])] @ fc

``features[j]`` is the model's last hidden state of the token before. The result behind the last
norm is the guess of the next one, and the model's head makes logits of it. Embedding, head, and
what heads, windows and rotary embeddings are like, are the model's.
"""

from __future__ import annotations

from pathlib import Path

import onnx_ir as ir

from optc.compiling.drafts.layer_skip import cut_behind
from optc.importer.additions.eagle import read_eagle
from optc.importer.safetensors import StoredTensor
from optc.ir.forms.decoder import FEATURES
from optc.ir.graph import add_initializer, width
from optc.ir.sources import Source, sources_metadata
from optc.ir.tensors import ModelTensor, model_tensors
from optc.ir.weights import LazyWeight
from optc.proof.reference.partition import Partition, partition

#: What norms have that state no epsilon.
_EPSILON = 1e-5
#: Before the names of all weights that are not the model's: nothing is taken for the model's own.
PREFIX = "eagle."


def make_draft_layer(model: ir.Model, folder: Path) -> None:
    """Make of a model in dense form, in place, the layer in ``folder`` that drafts for it.

    Raises:
        InputError: The folder is none, or its layer was trained for another model.
        UnsupportedError: The model's layers or its final norm cannot be told apart.
    """
    parts = partition(model)
    norm = cut_behind(model, parts, 1, "--eagle")
    epsilon = norm.attributes.get_float("epsilon", _EPSILON)
    size = width(parts.embedded)
    if size is None:
        raise RuntimeError("the embedding has no width")
    replaced = [one for one in model_tensors(model) if not _is_shared(one, parts)]
    shapes = {one.name: one.shape for one in replaced} | _own_shapes(size)
    stored = read_eagle(folder, shapes)
    for tensor in replaced:
        tensor.replace(stored[tensor.name].read_rows)
        for value in tensor.initializers:
            _rename(value, f"{PREFIX}{value.name}", tensor.shape[0])
    _read_features(model, parts, stored, epsilon)


def layer_weights(model: ir.Model) -> list[str]:
    """Names of the weights of linear layers that `make_draft_layer` put into ``model``."""
    found = (one for one in model_tensors(model) if one.kind == "linear")
    return [name for one in found if (name := one.name).startswith(PREFIX)]


def _own_shapes(size: int) -> dict[str, tuple[int, ...]]:
    norms = {f"{PREFIX}{name}_norm.weight": (size,) for name in ("embedding", "feature")}
    return {f"{PREFIX}fc.weight": (size, 2 * size), **norms}


def _is_shared(tensor: ModelTensor, parts: Partition) -> bool:
    """True if it is the model's embedding or head."""
    return any(one in (parts.embedding, parts.head.inputs[1]) for one in tensor.initializers)


def _rename(value: ir.Value, name: str, rows: int) -> None:
    value.name = name
    value.metadata_props.update(sources_metadata([Source(name, 0, rows)]))  # none of the model's
    if value.const_value is not None:
        value.const_value.name = name


def _read_features(
    model: ir.Model, parts: Partition, stored: dict[str, StoredTensor], epsilon: float
) -> None:
    """Put the projection of embedding and features where the layer reads embedded tokens."""
    graph, embedded = model.graph, parts.embedded
    size = stored[f"{PREFIX}fc.weight"].shape[0]
    float32 = ir.TensorType(ir.DataType.FLOAT)
    features = ir.Value(name=FEATURES, type=float32, shape=ir.Shape(["B", "S", size]))
    graph.inputs.append(features)
    readers = list(embedded.consumers())
    nodes = [
        _norm(graph, stored[f"{PREFIX}embedding_norm.weight"], embedded, epsilon),
        _norm(graph, stored[f"{PREFIX}feature_norm.weight"], features, epsilon),
    ]
    axis = ir.convenience.convert_attributes({"axis": -1})
    joined = [node.outputs[0] for node in nodes]
    nodes.append(ir.Node("", "Concat", joined, axis, name=f"{PREFIX}joined"))
    fc = _initializer(graph, stored[f"{PREFIX}fc.weight"], transposed=True)
    nodes.append(ir.Node("", "MatMul", [nodes[-1].outputs[0], fc], name=f"{PREFIX}fc"))
    for node, wide in zip(nodes, (size, size, 2 * size, size), strict=True):
        value = node.outputs[0]
        value.name, value.type = f"{node.name}.out", float32
        value.shape = ir.Shape(["B", "S", wide])
    producer = embedded.producer()
    if producer is None:
        raise RuntimeError("the embedding has no node")
    graph.insert_after(producer, nodes)
    for node in readers:
        for index, read in enumerate(node.inputs):
            if read is embedded:
                node.replace_input_with(index, nodes[-1].outputs[0])


def _norm(graph: ir.Graph, scale: StoredTensor, value: ir.Value, epsilon: float) -> ir.Node:
    attributes = ir.convenience.convert_attributes({"axis": -1, "epsilon": epsilon})
    inputs = [value, _initializer(graph, scale)]
    name = scale.name.removesuffix(".weight")
    return ir.Node("", "RMSNormalization", inputs, attributes, name=name)


def _initializer(graph: ir.Graph, stored: StoredTensor, *, transposed: bool = False) -> ir.Value:
    weight = LazyWeight(
        stored.read_rows, stored.shape, ir.DataType.FLOAT, stored.name, transposed=transposed
    )
    return add_initializer(graph, weight, stored.name)
