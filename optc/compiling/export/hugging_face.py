"""Writes an artifact as a plain folder for transformers: config, safetensors in floats, tokenizer.

Tensors go by the names of transformers' class and lie as it has them, which it reads as what it
saves itself with ``save_original_format=False``.
"""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path

import numpy as np
import onnx_ir as ir

from optc.artifact.artifact import Artifact
from optc.compiling.export.parameters import Weight, as_floats
from optc.compiling.export.safetensors_file import Array, Described, write_safetensors
from optc.compiling.export.source_class import SourceClass
from optc.compiling.export.tokenizer_folder import write_tokenizer
from optc.compiling.export.written import Written
from optc.ir.weights import LazyWeight

WEIGHTS_FILE = "model.safetensors"
_DTYPES = {"BF16": "bfloat16", "F32": "float32"}


def write_folder(
    folder: Path, artifact: Artifact, model: SourceClass, weights: Mapping[str, Weight]
) -> Written:
    """Write ``weights``, config and tokenizer into ``folder``, which is there and empty.

    Raises:
        OSError: A file cannot be written.
    """
    written = write_weights(folder, model, weights)
    write_tokenizer(folder, artifact)
    return written


def write_weights(folder: Path, model: SourceClass, weights: Mapping[str, Weight]) -> Written:
    """As `write_folder`, without a tokenizer."""
    floats = {name: as_floats(weight) for name, weight in weights.items()}
    shapes = model.origins.shapes
    described = {name: Described(_dtype(one), shapes[name]) for name, one in floats.items()}
    write_safetensors(folder / WEIGHTS_FILE, described, _contents(floats, described))
    _write_config(folder, model, described)
    return Written(dict(Counter(one.dtype.lower() for one in described.values())), {})


def _dtype(weight: LazyWeight) -> str:
    return "BF16" if weight.dtype == ir.DataType.BFLOAT16 else "F32"


def _contents(
    floats: Mapping[str, LazyWeight], described: Mapping[str, Described]
) -> Iterator[tuple[str, Array]]:
    for name, weight in floats.items():
        for start, stop in weight.tiles():
            rows = np.asarray(weight.read_rows(start, stop))
            yield name, rows if described[name].dtype == "BF16" else rows.astype(np.float32)


def _write_config(folder: Path, model: SourceClass, described: Mapping[str, Described]) -> None:
    most = Counter[str]()
    for one in described.values():
        most[one.dtype] += math.prod(one.shape)
    # vectors are float32 in every engine: transformers rounds them to the type of the matrices
    dtype = _DTYPES[max(most, key=lambda kind: most[kind])]
    config = {k: v for k, v in model.stated.items() if k != "torch_dtype"} | {"dtype": dtype}
    text = json.dumps(config, indent=2, sort_keys=True) + "\n"
    (folder / "config.json").write_text(text, encoding="utf-8")
