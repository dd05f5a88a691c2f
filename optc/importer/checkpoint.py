"""The checkpoint of a Hugging Face folder: one or several safetensors files, and their digest."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path

from optc.errors import InputError, UnsupportedError
from optc.importer.safetensors import StoredTensor, read_header

_INDEX = "model.safetensors.index.json"
_SINGLE = "model.safetensors"
_PICKLES = ("*.bin", "*.pt", "*.pth", "*.ckpt", "*.pkl")
_CHUNK_BYTES = 1 << 20


def checkpoint_files(folder: Path) -> list[Path]:
    """The safetensors files of ``folder``: those of the index, else ``model.safetensors``, else
    the only one there.

    Raises:
        UnsupportedError: The weights are pickles only.
        InputError: No weights, or a shard of the index is missing.
    """
    index = folder / _INDEX
    if index.exists():
        return _indexed_files(folder, index)
    if (folder / _SINGLE).exists():
        return [folder / _SINGLE]
    others = sorted(folder.glob("*.safetensors"))
    if len(others) == 1:
        return others
    if others:
        raise InputError(f"several safetensors files and no {_INDEX}", where=str(folder))
    pickles = sorted(p.name for pattern in _PICKLES for p in folder.glob(pattern))
    if pickles:
        raise UnsupportedError(
            f"{pickles[0]} is a pickle checkpoint, and loading one runs whatever code it holds",
            where=str(folder),
            hint="convert the weights to safetensors",
        )
    raise InputError("no weights here", where=str(folder), hint=f"{_SINGLE} or {_INDEX} is missing")


def _indexed_files(folder: Path, index: Path) -> list[Path]:
    try:
        names = sorted(set(json.loads(index.read_text())["weight_map"].values()))
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise InputError("not a safetensors index", where=str(index)) from error
    for name in names:
        if Path(name).name != name or not name.endswith(".safetensors"):
            raise InputError(f"{name!r} is not a safetensors file of this folder", where=str(index))
        if not (folder / name).is_file():
            raise InputError(
                f"shard {name} is missing", where=str(folder), hint=f"{_INDEX} names it; get it too"
            )
    return [folder / name for name in names]


def read_checkpoint(files: list[Path]) -> dict[str, StoredTensor]:
    """Every float tensor of ``files`` by name.

    Raises:
        InputError: A file is broken, or two files hold the same tensor.
    """
    tensors: dict[str, StoredTensor] = {}
    for file in files:
        for name, tensor in read_header(file).items():
            if name in tensors:
                raise InputError(
                    f"also in {tensors[name].file.name}", where=f"{file}: {name}", hint="which one?"
                )
            tensors[name] = tensor
    return tensors


def digest_source(folder: Path) -> str:
    """sha256 (hex) over config.json and every safetensors file of ``folder``: what identifies the
    source of an artifact.

    Raises: as `checkpoint_files`.
    """
    parts = [folder / "config.json", *checkpoint_files(folder)]
    return digest_files({file.name: file for file in parts})


def digest_files(files: Mapping[str, Path]) -> str:
    """sha256 (hex) over the names and contents of ``files``, streamed in 1 MiB pieces."""
    total = hashlib.sha256()
    for name, file in sorted(files.items()):
        one = hashlib.sha256()
        with file.open("rb") as stream:
            while chunk := stream.read(_CHUNK_BYTES):
                one.update(chunk)
        total.update(f"{one.hexdigest()}  {name}\n".encode())
    return total.hexdigest()
