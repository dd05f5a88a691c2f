"""Writes an artifact as a GGUF file, some rows at a time."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from optc.artifact import Artifact
from optc.errors import UnsupportedError
from optc.export.gguf.blocks import Loss, pieces, type_of
from optc.export.gguf.settings import add_settings
from optc.export.gguf.tokenizer import add_tokenizer
from optc.export.parameters import Weight, shape_of
from optc.export.source_class import SourceClass
from optc.export.written import Written
from optc.importer.gguf.file import check_package
from optc.importer.gguf.parameters import names_by_file, row_change
from optc.ir.quantized_rows import QuantizedRows
from optc.ir.weights import permute_rows


def write_gguf(
    output: Path, artifact: Artifact, model: SourceClass, weights: Mapping[str, Weight]
) -> Written:
    """Write ``weights`` and all that readers need to ``output``.

    Args:
        output: The file.
        artifact: Whose tokenizer goes into it.
        model: The class.
        weights: Its parameters by name.

    Raises:
        UnavailableError: The package gguf is missing.
        InputError: The artifact has no tokenizer.
        UnsupportedError: The format has no place for something, which is named.
        OSError: The file cannot be written.
    """
    check_package()
    from gguf import GGMLQuantizationType, GGUFWriter

    architecture = model.config.model_type
    named = _by_names_of_files(model, architecture, weights)
    writer = GGUFWriter(output, architecture)
    writer.add_type("model")
    writer.add_name(artifact.manifest.name)
    writer.add_quantization_version(2)
    add_settings(writer, architecture, model.config)
    add_tokenizer(writer, artifact, model.config.vocab_size)
    kinds = {name: type_of(weight) for name, weight in named.items()}
    for name, weight in named.items():
        kind = GGMLQuantizationType[kinds[name]]
        _describe(writer, name, shape_of(weight), kind)
    try:
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_ti_data_to_file()
        return _write_data(writer, named, kinds)
    finally:
        writer.close()


def _describe(writer: Any, name: str, shape: tuple[int, ...], kind: Any) -> None:
    from gguf.quants import quant_shape_to_byte_shape

    whole = quant_shape_to_byte_shape(shape, kind)
    size = int(np.prod(whole, dtype=np.int64))
    if kind.name in ("F32", "F16", "BF16"):
        size = int(np.prod(shape, dtype=np.int64)) * (4 if kind.name == "F32" else 2)
        whole = shape
    writer.add_tensor_info(name, list(whole), np.dtype(np.uint8), size, raw_dtype=kind)
    if whole is shape:  # the package takes bytes to be blocks
        writer.tensors[-1][name].shape = list(shape)


def _write_data(writer: Any, named: Mapping[str, Weight], kinds: Mapping[str, str]) -> Written:
    stream = writer.fout[0]
    writer.write_padding(stream, stream.tell())
    losses: defaultdict[str, Loss] = defaultdict(Loss)
    for name, weight in named.items():
        size = 0
        for piece in pieces(weight, kinds[name], name, losses[kinds[name]]):
            stream.write(piece.data)
            size += piece.nbytes
        writer.write_padding(stream, size)
    lost = {kind: loss.relative for kind, loss in losses.items() if loss.squared}
    return Written(dict(Counter(kinds.values())), lost)


def _by_names_of_files(
    model: SourceClass, architecture: str, weights: Mapping[str, Weight]
) -> dict[str, Weight]:
    """The weights by their names in files, with the rows in the order of files."""
    processor, names = names_by_file(model.model, architecture)
    theirs = {parameter: name for name, parameter in names.items()}
    found = dict[str, Weight]()
    for parameter, weight in weights.items():
        name = theirs.get(parameter)
        if name is None:
            raise UnsupportedError("GGUF has no name for this tensor", where=parameter)
        change = row_change(processor, name, shape_of(weight), parameter)
        if change.turned or change.added:
            raise UnsupportedError("GGUF stores this tensor in another form", where=parameter)
        if change.order is not None:
            weight = _reordered(weight, np.argsort(change.order))
        found[name] = weight
    return found


def _reordered(weight: Weight, order: np.ndarray[Any, np.dtype[np.int64]]) -> Weight:
    if isinstance(weight, QuantizedRows):
        return weight.taken(order)
    return permute_rows(weight, order)
