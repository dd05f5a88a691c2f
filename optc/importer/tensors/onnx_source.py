"""ONNX models: files, protocol buffers and models of onnx_ir."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from pathlib import Path

import onnx
import onnx_ir as ir

from optc.errors import InputError, OptcError, UnsupportedError
from optc.importer.tensors.declared_shapes import corrected_shapes
from optc.importer.tensors.imported import ImportedTensors, digest_of
from optc.importer.tensors.interface import describe
from optc.importer.tensors.older_opsets import MOST_BYTES, converted
from optc.importer.tensors.plain_proto import plain
from optc.importer.tensors.widened import free_inputs, widen
from optc.system.foreign.errors import foreign_errors, innermost
from optc.system.foreign.file import open_file
from optc.system.sources.dim import Dim

_AGAIN = "export the model again"
#: What nodes of a training are, by their operators.
_TRAINED = {
    "BatchNormalization": "batch norm by mean and variance of its own batch",
    "Dropout": "dropout that is not idle",
}
_MODE_OF_DROPOUT = 2
_DRAW = frozenset(
    [
        *("RandomNormal", "RandomNormalLike", "RandomUniform", "RandomUniformLike"),
        *("Multinomial", "Bernoulli"),
    ]
)


def import_onnx(
    source: Path | onnx.ModelProto | ir.Model, name: str, dims: Iterable[Dim] = ()
) -> ImportedTensors:
    """The model of an ONNX file; weights beside the file stay there, and are read when needed.

    Args:
        source: A file, or a model in memory, which is not changed.
        name: Of the model.
        dims: Bounds of its dynamic dimensions, by the names that they have in it.

    Raises:
        InputError: The file is no model, or its weights lie outside of its folder.
        UnsupportedError: It is of an opset that cannot be converted, or was exported in training.
    """
    # What was read may still be no graph: onnx_ir says so wherever it counts, copies or writes it.
    where = str(source) if isinstance(source, Path) else name
    with foreign_errors(where, "is no valid ONNX model", _AGAIN):
        model, warnings = _read(source)
        model = converted(_without_weights(model), name)
        _refuse_training(model)
        free_inputs(model)
        warnings += widen(model) + corrected_shapes(model) + _drawn(model)
        interface = describe(model, dims)
        return ImportedTensors(model, interface, name, digest_of(model), warnings=warnings)


def read_onnx(source: Path | onnx.ModelProto | ir.Model, name: str) -> ir.Model:
    """The graph of an ONNX model, of an opset that passes know; raises as `import_onnx`."""
    return converted(_without_weights(_read(source)[0]), name)


def _without_weights(model: ir.Model) -> ir.Model:
    """``model``, whose inputs are no weights any more, as they were before IR version 4."""
    initializers = model.graph.initializers
    for value in [v for v in model.graph.inputs if v.name in initializers]:
        model.graph.inputs.remove(value)
    return model


def _refuse_training(model: ir.Model) -> None:
    for node in model.graph:
        if _trains(node):
            raise UnsupportedError(
                f"it is a {_TRAINED[node.op_type]}: the model was exported as it trains",
                where=f"{node.op_type} {node.name or node.outputs[0].name}",
                hint="call module.eval() before the export",
            )


def _trains(node: ir.Node) -> bool:
    if node.op_type == "BatchNormalization":
        mode = node.attributes.get("training_mode")
        return mode is not None and mode.as_int() != 0
    if node.op_type != "Dropout" or len(node.inputs) <= _MODE_OF_DROPOUT:
        return False
    value = node.inputs[_MODE_OF_DROPOUT]
    drops = None if value is None else ir.convenience.get_const_tensor(value)
    return drops is not None and bool(drops.numpy().any())


def _drawn(model: ir.Model) -> tuple[str, ...]:
    """A warning where something is drawn at random."""
    for node in ir.traversal.RecursiveGraphIterator(model.graph):
        if node.op_type in _DRAW and not node.domain:
            place = f"{node.op_type} {node.name or node.outputs[0].name}"
            return (f"it draws random numbers ({place}): answers differ from call to call",)
    return ()


def _read(source: Path | onnx.ModelProto | ir.Model) -> tuple[ir.Model, tuple[str, ...]]:
    """The model, and warnings."""
    if isinstance(source, ir.Model):
        return source.clone(), ()
    if isinstance(source, onnx.ModelProto):
        own = onnx.ModelProto()
        own.CopyFrom(source)
        warnings = plain(own)
        return ir.from_proto(own), warnings
    where = str(source)
    try:
        with open_file(source) as stream:
            size = os.fstat(stream.fileno()).st_size
        if not 0 < size <= MOST_BYTES:
            raise InputError(f"is no ONNX model: it has {size} bytes", where=where, hint=_AGAIN)
        proto = onnx.load(source, load_external_data=False)
        warnings = plain(proto)
        model = ir.from_proto(proto)
        ir.external_data.set_base_dir(model.graph, source.parent)
    except OptcError:
        raise
    except OSError as error:
        raise InputError(f"cannot be read: {error.strerror or error}", where=where) from error
    except Exception as error:  # protocol buffers and onnx_ir raise what they like at broken files
        first = innermost(error)
        reason = " ".join(str(first).split())[:200] or type(first).__name__
        raise InputError(f"is no ONNX model: {reason}", where=where, hint=_AGAIN) from error
    _check_external(model, source.parent.resolve(), where)
    return model, warnings


def _check_external(model: ir.Model, folder: Path, where: str) -> None:
    """Refuse weights in files outside of the model's folder, which a file must not name."""
    for name, tensor in _external(model):
        path = (folder / tensor.location).resolve()
        if not path.is_relative_to(folder):
            raise InputError(
                f"the weight {name!r} lies outside of the model's folder: {tensor.location}",
                where=where,
                hint="keep the files of a model in one folder",
            )
        end = (tensor.offset or 0) + (tensor.length or 0)
        if not path.is_file() or path.stat().st_size < end:
            raise InputError(
                f"the file {tensor.location} of the weight {name!r} is missing or too short",
                where=where,
                hint="copy the model with all files beside it",
            )


def _external(model: ir.Model) -> Iterator[tuple[str, ir.ExternalTensor]]:
    """Every tensor that lies in another file, with its name. Those of subgraphs, functions and
    attributes are read into memory once they have been given out: engines keep weights of the main
    graph alone beside the model."""
    for value in model.graph.initializers.values():
        if isinstance(value.const_value, ir.ExternalTensor):
            yield str(value.name), value.const_value
    graphs = [model.graph, *(function.graph for function in model.functions.values())]
    for node in (node for graph in graphs for node in ir.traversal.RecursiveGraphIterator(graph)):
        for attribute in list(node.attributes.values()):
            yield from _external_of(node, attribute)


def _external_of(node: ir.Node, attribute: ir.Attr) -> Iterator[tuple[str, ir.ExternalTensor]]:
    if attribute.type == ir.AttributeType.TENSOR:
        if isinstance(tensor := attribute.value, ir.ExternalTensor):
            yield tensor.name or attribute.name, tensor
            own = ir.Tensor(tensor.numpy().copy(), name=tensor.name)
            node.attributes[attribute.name] = ir.AttrTensor(attribute.name, own)
    elif attribute.type in (ir.AttributeType.GRAPH, ir.AttributeType.GRAPHS):
        many = attribute.type == ir.AttributeType.GRAPHS
        for graph in attribute.value if many else (attribute.value,):
            for value in graph.initializers.values():
                if isinstance(tensor := value.const_value, ir.ExternalTensor):
                    yield str(value.name), tensor
                    value.const_value = ir.Tensor(tensor.numpy().copy(), name=tensor.name)
