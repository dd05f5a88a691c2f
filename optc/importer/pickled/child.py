"""Finds the tensors of files that ``torch.save`` wrote, in a process of its own.

A pickle is a program. PyTorch's loader with ``weights_only=True`` runs none of it but what builds
tensors, and this process holds nothing that a mistake of that loader could reach. No number is
read: a tensor's storage lies uncompressed in the file, and its place is the answer.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from zipfile import ZIP_STORED, BadZipFile, ZipFile

import torch
from torch._subclasses.fake_tensor import FakeTensorMode

from optc.errors import InputError, UnsupportedError
from optc.system.foreign.errors import foreign_errors
from optc.system.foreign.file import open_file
from optc.system.processes.child_job import answer

#: Types by their names in safetensors.
TYPES = {
    torch.float64: "F64",
    torch.float32: "F32",
    torch.float16: "F16",
    torch.bfloat16: "BF16",
    torch.int64: "I64",
    torch.int32: "I32",
    torch.int16: "I16",
    torch.int8: "I8",
    torch.uint8: "U8",
    torch.bool: "BOOL",
    torch.float8_e4m3fn: "F8_E4M3",
}
SAVE_AGAIN = (
    "load the model with transformers and save it: "
    "AutoModelForCausalLM.from_pretrained(FOLDER).save_pretrained(NEW)"
)
_REFUSED = "torch.load(weights_only=True) refuses it"


def work(request: str) -> list[dict[str, Any]]:
    """The tensors of each file of the request.

    Args:
        request: JSON: paths.

    Returns:
        For each file the type, shape and first byte of its tensors by name.
    """
    return [tensors(Path(file)) for file in json.loads(request)]


def tensors(file: Path) -> dict[str, Any]:
    """Type, shape and first byte of every tensor in ``file``, by name.

    Raises:
        InputError: It is damaged, holds something else than tensors by name, or what PyTorch's
            loader refuses.
        UnsupportedError: Its tensors do not lie in it as they are.
    """
    records = _records(file)
    hint = "it holds more than tensors, or is damaged: " + SAVE_AGAIN
    with foreign_errors(str(file), _REFUSED, hint), FakeTensorMode():
        loaded = torch.load(file, map_location="cpu", weights_only=True)
    if not isinstance(loaded, Mapping) or not all(isinstance(name, str) for name in loaded):
        raise InputError("it holds no tensors by name", where=str(file), hint=SAVE_AGAIN)
    return {name: _place(value, records, f"{file}: {name[:200]}") for name, value in loaded.items()}


def _records(file: Path) -> dict[int, int]:
    """Bytes of the records of an archive by the place of their first byte; none are compressed.

    Raises:
        UnsupportedError: It is of the format before PyTorch 1.6.
        InputError: It cannot be read, or is damaged.
    """
    with foreign_errors(str(file), "the archive is damaged", "download it again"):
        sizes = _sizes(file)
        reader = torch._C.PyTorchFileReader(str(file))
        inner = {name.partition("/")[2]: size for name, size in sizes.items()}
        found = {reader.get_record_offset(name): size for name, size in inner.items()}
    if any(begin + size > file.stat().st_size for begin, size in found.items()):
        raise InputError("the archive is damaged", where=str(file), hint="download it again")
    return found


def _sizes(file: Path) -> dict[str, int]:
    """Bytes of the records by their names; raises as `_records`, and what zipfile raises."""
    try:
        with open_file(file) as stream, ZipFile(stream) as archive:
            compressed = any(info.compress_type != ZIP_STORED for info in archive.infolist())
            sizes = {info.filename: info.file_size for info in archive.infolist()}
            order = next((name for name in sizes if name.endswith("/byteorder")), None)
            if compressed or len(sizes) != len(archive.infolist()):
                raise InputError("the archive is not as PyTorch writes it", where=str(file))
            if order is not None and archive.read(order) != b"little":
                raise UnsupportedError("its numbers are big endian", where=str(file))
    except BadZipFile as error:
        raise UnsupportedError(
            "no checkpoint as PyTorch writes it since 1.6",
            where=str(file),
            hint=f"if it is an older one, {SAVE_AGAIN}",
        ) from error
    except OSError as error:
        raise InputError(f"cannot be read: {error.strerror or error}", where=str(file)) from error
    return sizes


def _place(value: object, records: Mapping[int, int], where: str) -> list[Any]:
    if not isinstance(value, torch.Tensor):
        raise InputError(
            f"no tensor, but {type(value).__name__}: the file is no plain list of weights",
            where=where,
            hint=SAVE_AGAIN,
        )
    kind = TYPES.get(value.dtype)
    if kind is None:
        raise UnsupportedError(f"tensors of {value.dtype} are not read", where=where)
    if not value.numel():
        return [kind, list(value.shape), 0]
    if value.layout != torch.strided or not value.is_contiguous():
        raise UnsupportedError("it does not lie row by row", where=where, hint=SAVE_AGAIN)
    begin = getattr(value.untyped_storage(), "_checkpoint_offset", -1)
    skipped, size = value.storage_offset() * value.itemsize, value.numel() * value.itemsize
    if begin not in records or skipped < 0 or skipped + size > records[begin]:
        raise InputError("it does not lie within its file", where=where, hint="download it again")
    return [kind, list(value.shape), begin + skipped]


if __name__ == "__main__":
    sys.exit(answer(sys.argv[1:], work))
