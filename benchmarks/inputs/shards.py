"""Writing a checkpoint folder tensor by tensor: safetensors shards and their index.

A tensor's values are asked for when they are written, tile by tile, so that a checkpoint of any
size needs the memory of one tile (format: https://huggingface.co/docs/safetensors).
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

SHARD_BYTES = 1 << 30
TOKENIZER_FILES = ("tokenizer.json", "tokenizer_config.json", "special_tokens_map.json")
_ITEM_BYTES = {"BF16": 2, "F32": 4}

Tile = npt.NDArray[Any]


@dataclass(frozen=True)
class Tensor:
    """A tensor that is to be written.

    Attributes:
        name: Its name.
        dtype: ``BF16`` or ``F32``.
        shape: Its shape.
        tiles: Its values in order: uint16 bits of BF16, float32 of F32.
    """

    name: str
    dtype: str
    shape: tuple[int, ...]
    tiles: Callable[[], Iterator[Tile]]

    @property
    def bytes(self) -> int:
        """Its size in the file."""
        return _ITEM_BYTES[self.dtype] * math.prod(self.shape)


def write_checkpoint(folder: Path, tensors: Sequence[Tensor], limit: int = SHARD_BYTES) -> None:
    """Write shards of at most ``limit`` bytes (but of one tensor at least) and their index."""
    shards = _shards(tensors, limit)
    weight_map: dict[str, str] = {}
    for index, shard in enumerate(shards, start=1):
        name = f"model-{index:05}-of-{len(shards):05}.safetensors"
        write_shard(folder / name, shard)
        weight_map |= {tensor.name: name for tensor in shard}
    total = sum(tensor.bytes for tensor in tensors)
    index_json = {"metadata": {"total_size": total}, "weight_map": weight_map}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index_json, indent=2) + "\n")


def _shards(tensors: Sequence[Tensor], limit: int) -> list[list[Tensor]]:
    shards: list[list[Tensor]] = [[]]
    for tensor in tensors:
        if shards[-1] and sum(t.bytes for t in shards[-1]) + tensor.bytes > limit:
            shards.append([])
        shards[-1].append(tensor)
    return shards


def write_shard(path: Path, tensors: Sequence[Tensor]) -> None:
    """One file: length of the header, header, and the tensors."""
    header: dict[str, object] = {"__metadata__": {"format": "pt"}}
    offset = 0
    for tensor in tensors:
        end = offset + tensor.bytes
        header[tensor.name] = {
            "dtype": tensor.dtype,
            "shape": list(tensor.shape),
            "data_offsets": [offset, end],
        }
        offset = end
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with path.open("wb") as file:
        file.write(len(text).to_bytes(8, "little") + text)
        for tensor in tensors:
            for tile in tensor.tiles():
                file.write(np.ascontiguousarray(tile).tobytes())
