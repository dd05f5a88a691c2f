"""The digest of a model's files; on the way, every number of its weights is looked at.

A checkpoint is read from end to end once: what is hashed is also checked, piece by piece.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import BinaryIO

import numpy as np

from optc.errors import InputError
from optc.importer.adapted.folder import adapter_files
from optc.importer.checkpoint import checkpoint_files
from optc.importer.conversion.tensor import Leaf
from optc.importer.quantized.settings import MODELOPT_FILE
from optc.importer.safetensors import read_header
from optc.system.foreign.file import open_file
from optc.system.progress import tell

#: A multiple of every element's size.
_PIECE_BYTES = 1 << 20
#: A share is told after so many.
_TOLD_BYTES = 32 << 20
#: By type: its bits as integers, those without the sign, and the first that no float32 holds as a
#: finite number. Of float64 that is the half way from the largest float32 to the next.
_LIMITS = {
    "F64": ("<u8", (1 << 63) - 1, int(np.float64((2 - 2**-24) * 2.0**127).view(np.uint64))),
    "F32": ("<u4", 0x7FFFFFFF, 0x7F800000),
    "F16": ("<u2", 0x7FFF, 0x7C00),
    "BF16": ("<u2", 0x7FFF, 0x7F80),
    "F8_E4M3": ("u1", 0x7F, 0x7F),
    "F8_E8M0": ("u1", 0xFF, 0xFF),
}


def digest_source(folder: Path, weights: Iterable[Leaf] = ()) -> str:
    """sha256 (hex) over config.json, ModelOpt's file beside it if there is one, and every file of
    weights of ``folder``, those of an adapter too: what identifies the source of an artifact.

    Args:
        folder: The model's.
        weights: Tensors whose numbers must be finite.

    Raises:
        InputError: As `checkpoint_files` and `digest_files` say.
    """
    beside = folder / MODELOPT_FILE
    stated = [folder / "config.json", *([beside] if beside.is_file() else [])]
    parts = [*stated, *checkpoint_files(folder), *adapter_files(folder)]
    return digest_files({file.name: file for file in parts}, weights, stage="import")


def digest_trained(folder: Path, config: str, weights: str, hint: str) -> str:
    """sha256 (hex) over names and contents of a folder's two files, wherever it lies.

    Args:
        folder: What a training left: heads, or a layer.
        config: Name of the file with its settings.
        weights: Name of the file with its tensors.
        hint: How to get them.

    Raises:
        InputError: A file is missing, or the weights are damaged or not finite.
    """
    files = {name: folder / name for name in (config, weights)}
    for name, file in files.items():
        if not file.is_file():
            raise InputError(f"no {name}", where=str(folder), hint=hint)
    return digest_files(files, read_header(files[weights]).values())


def digest_files(
    files: Mapping[str, Path], weights: Iterable[Leaf] = (), *, stage: str = ""
) -> str:
    """sha256 (hex) over the names and contents of ``files``, streamed in pieces of 1 MiB.

    Args:
        files: By the names that count.
        weights: Tensors in these files; numbers of those in a type of floats must be finite.
        stage: Told how far it is (`optc.system.progress.tell`); empty tells nothing.

    Raises:
        InputError: A weight holds NaN or infinities; names the file and the tensor.
    """
    total = hashlib.sha256()
    share = _Share(stage, sum(file.stat().st_size for file in files.values() if file.is_file()))
    by_file: dict[Path, dict[tuple[int, int], Leaf]] = {}
    for weight in weights:
        if weight.bytes and weight.dtype in _LIMITS:
            by_file.setdefault(weight.file, {})[weight.offset, weight.bytes] = weight
    for name, file in sorted(files.items()):
        checked = [tensor for _, tensor in sorted(by_file.get(file, {}).items())]
        total.update(f"{_digest(file, checked, share)}  {name}\n".encode())
    return total.hexdigest()


class _Share:
    """Tells how much of the files is read, in MiB: of a large model most of its import."""

    def __init__(self, stage: str, total_bytes: int) -> None:
        self._stage = stage
        self._total, self._done = total_bytes // _PIECE_BYTES, 0

    def add(self, count: int) -> None:
        before, self._done = self._done, self._done + count
        if self._stage and before // _TOLD_BYTES < self._done // _TOLD_BYTES:
            tell(self._stage, min(self._done // _PIECE_BYTES, self._total), self._total)


def _digest(file: Path, checked: list[Leaf], share: _Share) -> str:
    """sha256 (hex) of a file; ``checked`` are in the order in which they lie in it."""
    digest = hashlib.sha256()
    with open_file(file) as stream:
        for tensor in checked:
            begin = _first_unread(tensor, stream.tell())
            for piece in _pieces(stream, begin - stream.tell()):
                digest.update(piece)
                share.add(len(piece))
            for piece in _pieces(stream, tensor.offset + tensor.bytes - begin):
                digest.update(piece)
                share.add(len(piece))
                _check_finite(piece, tensor)
        while piece := stream.read(_PIECE_BYTES):
            digest.update(piece)
            share.add(len(piece))
    return digest.hexdigest()


def _first_unread(tensor: Leaf, position: int) -> int:
    """The first byte of a number that begins at or behind ``position``: tensors may share bytes."""
    size = np.dtype(_LIMITS[tensor.dtype][0]).itemsize
    shared = max(0, position - tensor.offset)
    return tensor.offset + min(-(-shared // size) * size, tensor.bytes)


def _pieces(stream: BinaryIO, count: int) -> Iterator[bytes]:
    """The next ``count`` bytes, or those that are left."""
    while count > 0 and (piece := stream.read(min(count, _PIECE_BYTES))):
        count -= len(piece)
        yield piece


def _check_finite(piece: bytes, tensor: Leaf) -> None:
    kind, unsigned, limit = _LIMITS[tensor.dtype]
    bits = np.frombuffer(piece, kind)
    if int((bits & bits.dtype.type(unsigned)).max()) >= limit:
        raise InputError(
            "the weight holds NaN or infinities",
            where=f"{tensor.file}: {tensor.name}",
            hint="the checkpoint is damaged, or its training diverged",
        )
