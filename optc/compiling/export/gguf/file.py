"""Writes an artifact as a GGUF file, some rows at a time."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnx_ir as ir

from optc.artifact.artifact import Artifact
from optc.compiling.export.gguf.blocks import Loss, pieces, type_of
from optc.compiling.export.gguf.names import Placed, place
from optc.compiling.export.gguf.rotary import frequency_factors
from optc.compiling.export.gguf.settings import add_settings, architecture_of
from optc.compiling.export.gguf.taken_over import add_taken_over
from optc.compiling.export.gguf.tokenizer import add_tokenizer
from optc.compiling.export.parameters import Weight
from optc.compiling.export.source_class import SourceClass
from optc.compiling.export.written import Written
from optc.importer.gguf.file import check_package
from optc.importer.gguf.parameters import FACTORS
from optc.ir.weights import LazyWeight


def write_gguf(
    output: Path,
    artifact: Artifact,
    model: SourceClass,
    weights: Mapping[str, Weight],
    tokenizer_from: Path | None = None,
) -> Written:
    """Write ``weights`` and all that readers need to ``output``.

    Args:
        output: The file.
        artifact: Whose tokenizer goes into it.
        model: The class.
        weights: Its parameters by name.
        tokenizer_from: A GGUF file whose tokenizer is written instead.

    Raises:
        UnavailableError: The package gguf is missing.
        InputError: The artifact has no tokenizer.
        UnsupportedError: The format has no place for something, which is named.
        OSError: The file cannot be written.
    """
    check_package()
    from gguf import GGMLQuantizationType, GGUFWriter

    architecture = architecture_of(model.config)
    named = place(model, architecture, weights)
    if (factors := frequency_factors(model.config)) is not None:
        lazy = LazyWeight(lambda a, b: factors[a:b], factors.shape, ir.DataType.FLOAT, FACTORS)
        named[FACTORS] = Placed(lazy, factors.shape)
    writer = GGUFWriter(output, architecture)
    writer.add_type("model")
    writer.add_name(artifact.manifest.name)
    writer.add_quantization_version(2)
    add_settings(writer, architecture, model.config)
    if tokenizer_from is None:
        unknown = getattr(model.config, "unk_token_id", None)
        add_tokenizer(writer, artifact, model.config.vocab_size, unknown)
    else:
        add_taken_over(writer, tokenizer_from, artifact)
    kinds = {name: type_of(one.weight) for name, one in named.items()}
    for name, one in named.items():
        _describe(writer, name, one.shape, GGMLQuantizationType[kinds[name]])
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


def _write_data(writer: Any, named: Mapping[str, Placed], kinds: Mapping[str, str]) -> Written:
    stream = writer.fout[0]
    writer.write_padding(stream, stream.tell())
    losses: defaultdict[str, Loss] = defaultdict(Loss)
    for name, one in named.items():
        size = 0
        for piece in pieces(one.weight, kinds[name], name, losses[kinds[name]]):
            stream.write(piece.data)
            size += piece.nbytes
        writer.write_padding(stream, size)
    lost = {kind: loss.relative for kind, loss in losses.items() if loss.squared}
    return Written(dict(Counter(kinds.values())), lost)
