"""The tensors and the metadata of a GGUF file; nothing of the weights is read."""

from __future__ import annotations

import math
import os
import re
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from optc.errors import InputError, UnavailableError, UnsupportedError
from optc.importer.gguf.structure import check_structure
from optc.importer.gguf.tensor import GgufTensor
from optc.system.foreign.errors import foreign_errors
from optc.system.foreign.file import is_file

if TYPE_CHECKING:
    from gguf import GGUFReader

    from optc.importer.gguf.reader import PlainReader

SUFFIX = ".gguf"
_SHARD = re.compile(r"(.+)-(\d{5})-of-(\d{5})\.gguf", re.ASCII)
_UNREADABLE, _AGAIN = "not a GGUF file that can be read", "download it again"


def check_package() -> None:
    """Check that the package that reads GGUF is installed.

    Raises:
        UnavailableError: It is not.
    """
    try:
        import gguf  # noqa: F401 - whether it is there
    except ImportError as error:
        raise UnavailableError(
            "GGUF files need the package gguf", hint='install it: pip install "optc[gguf]"'
        ) from error


def files_of(file: Path) -> list[Path]:
    """The files of a model whose first or only one is ``file``.

    Raises:
        InputError: One is missing, or ``file`` is another part than the first.
    """
    match = _SHARD.fullmatch(file.name)
    if match is None:
        return [file]
    stem, number, count = match[1], int(match[2]), int(match[3])
    if number != 1:
        raise InputError(
            f"part {number} of a model", where=str(file), hint="give its first part, -00001-of-"
        )
    every = [file.with_name(f"{stem}-{i:05}-of-{count:05}.gguf") for i in range(1, count + 1)]
    for one in every:
        if not one.is_file():
            raise InputError(f"part {one.name} is missing", where=str(file.parent), hint="get it")
    return every


def open_gguf(file: Path) -> PlainReader:
    """The file, its header read.

    Raises:
        InputError: It is damaged, or no GGUF file.
        UnavailableError: The package is missing.
    """
    check_package()
    changed = file.stat().st_mtime_ns if is_file(file) else None
    return _opened(file, Path(os.path.realpath(file)), changed)


@lru_cache(maxsize=2)  # a compile looks at the header several times, and it takes seconds
def _opened(file: Path, place: Path, changed: int | None) -> PlainReader:
    """The file; what is known of it holds for one at ``place`` of one time of change."""
    check_structure(file)
    from optc.importer.gguf.reader import PlainReader

    with foreign_errors(str(file), _UNREADABLE, _AGAIN):
        return PlainReader(file)


def metadata_of(reader: GGUFReader, prefix: str = "") -> dict[str, Any]:
    """The metadata whose keys begin with ``prefix``, by key.

    Raises:
        InputError: A value is none of its type, such as a text that is not UTF-8; names the key.
    """
    found = {}
    for name, field in reader.fields.items():
        if name.startswith(prefix):
            with foreign_errors(f"key {name[:100]!r}", _UNREADABLE, _AGAIN):
                found[name] = field.contents()
    return found


def vocabulary_of(reader: PlainReader) -> dict[str, Any]:
    """The metadata of the tokenizer, by key, long lists too.

    Raises:
        InputError: As `metadata_of`.
    """
    found = metadata_of(reader, "tokenizer.")
    for name in found:
        with foreign_errors(f"key {name[:100]!r}", _UNREADABLE, _AGAIN):
            values = reader.whole_list(name)
        if values is not None:
            found[name] = values
    return found


def read_gguf(files: Sequence[Path]) -> dict[str, GgufTensor]:
    """Every tensor of ``files`` by its name there.

    Raises:
        InputError: A file is damaged, or two of them have a tensor of the same name.
        UnsupportedError: A tensor is of a type that the package cannot decode.
    """
    found: dict[str, GgufTensor] = {}
    for file in files:
        for one in open_gguf(file).tensors:
            with foreign_errors(str(file), _UNREADABLE, _AGAIN):
                tensor = GgufTensor(
                    file,
                    one.name,
                    one.tensor_type.name,
                    tuple(int(size) for size in reversed(one.shape.tolist())),
                    int(one.data_offset),
                    int(one.n_bytes),
                )
                _check(tensor, file.stat().st_size)
            if tensor.name in found:
                raise InputError(f"also in {found[tensor.name].file.name}", where=tensor.where)
            found[tensor.name] = tensor
    return found


def _check(tensor: GgufTensor, size: int) -> None:
    from gguf import GGML_QUANT_SIZES, GGMLQuantizationType
    from gguf.quants import dequantize

    kind = GGMLQuantizationType[tensor.dtype]
    block, block_bytes = GGML_QUANT_SIZES[kind]
    values = math.prod(tensor.shape) if tensor.shape else 0
    # in 64 bits, as the reader multiplies, sizes whose product is too large give any number
    fits = values // block * block_bytes == tensor.bytes and tensor.offset + tensor.bytes <= size
    if not values or not fits or tensor.shape[-1] % block:
        raise InputError(
            "the tensor does not fit the file, or its blocks not its rows",
            where=tensor.where,
            hint="download it again",
        )
    try:
        dequantize(np.zeros((1, block_bytes), np.uint8), kind)
    except NotImplementedError as error:
        if tensor.dtype not in ("F32", "F16", "F64"):
            raise UnsupportedError(
                f"tensors of type {tensor.dtype} cannot be decoded",
                where=tensor.where,
                hint="quantize the model to another type, such as Q4_K or Q8_0",
            ) from error
