"""Grow a trained Llama to more parameters without changing what it computes.

    python -m benchmarks.inputs.grow_model examples/models/pycode 4 OUT

Every channel, MLP neuron and head occurs ``factor`` times in the grown model, and every weight
that reads them is divided by ``factor``; the head is untied, since it reads where the embedding
writes. RMS norms over repeated channels and attention in repeated heads are what they were. So
the logits stay those of the trained model, at the size, and with the speed, of a larger one.
With a power of two the weights stay exact in bfloat16. Written as it is read, tile by tile.
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import numpy as np

from benchmarks.inputs.shards import TOKENIZER_FILES, Tensor, Tile, write_checkpoint
from optc.errors import InputError, OptcError
from optc.importer.checkpoint import checkpoint_files, read_checkpoint
from optc.importer.safetensors import StoredTensor

_EMBEDDING, _HEAD = "model.embed_tokens.weight", "lm_head.weight"
#: Sizes of config.json that grow; head_dim and the vocabulary stay.
_GROWN_SIZES = (
    "hidden_size",
    "intermediate_size",
    "num_attention_heads",
    "num_key_value_heads",
)
_TILE_VALUES = 4 << 20


class _Growth(NamedTuple):
    """The growth of a tensor: repeats of its rows and columns, and the divisor of its values."""

    rows: int
    columns: int
    divisor: int


def grow(source: Path, factor: int, output: Path) -> None:
    """Write the grown model into ``output``, which is created.

    Args:
        source: Hugging Face folder of a Llama in BF16 or F32.
        factor: Copies of every channel, neuron and head: a power of two.
        output: A folder that does not exist yet.

    Raises:
        InputError: The model is no Llama, the factor no power of two, a weight too small to be
            divided exactly, or the output exists; nothing is written then.
    """
    config = _config(source, factor)
    tensors = read_checkpoint(checkpoint_files(source))
    if output.exists():
        raise InputError("exists already", where=str(output), hint="name a new folder")
    grown = [grow_tensor(name, stored, factor) for name, stored in tensors.items()]
    if _HEAD not in tensors:
        grown.append(_grown(_HEAD, tensors[_EMBEDDING], _Growth(1, factor, factor)))
    output.parent.mkdir(parents=True, exist_ok=True)
    with TemporaryDirectory(dir=output.parent, prefix=f".{output.name}.") as temporary:
        folder = Path(temporary, "model")
        folder.mkdir()
        (folder / "config.json").write_text(json.dumps(config, indent=2) + "\n")
        for name in (*TOKENIZER_FILES, "generation_config.json"):
            if (source / name).exists():
                shutil.copyfile(source / name, folder / name)
        write_checkpoint(folder, grown)
        folder.rename(output)


def check_factor(factor: int) -> None:
    """Refuse factors by which weights cannot be divided exactly.

    Raises:
        InputError: It is no power of two.
    """
    if factor < 1 or factor & (factor - 1):
        raise InputError(f"{factor} is no power of two", where="factor", hint="for example 4")


def grow_tensor(name: str, stored: StoredTensor, factor: int) -> Tensor:
    """A tensor of a grown Llama.

    Raises:
        InputError: It is of another type than BF16 and F32, or none of a Llama.
    """
    return _grown(name, stored, _growth(name, stored, factor))


def _config(source: Path, factor: int) -> dict[str, Any]:
    check_factor(factor)
    path = source / "config.json"
    if not path.is_file():
        raise InputError("is missing", where=str(path), hint="give a Hugging Face folder")
    config: dict[str, Any] = json.loads(path.read_text())
    if config.get("model_type") != "llama":
        raise InputError(f"a {config.get('model_type')!r}, not a llama", where=str(path))
    heads = config["num_attention_heads"]
    config["num_key_value_heads"] = config.get("num_key_value_heads") or heads
    config["head_dim"] = config.get("head_dim") or config["hidden_size"] // heads
    config["tie_word_embeddings"] = False
    return config | {key: config[key] * factor for key in _GROWN_SIZES}


def _growth(name: str, stored: StoredTensor, factor: int) -> _Growth:
    if stored.dtype not in ("BF16", "F32"):
        raise InputError(f"{stored.dtype} cannot be divided exactly", where=name)
    if name == _EMBEDDING:
        return _Growth(1, factor, 1)
    if name == _HEAD:
        return _Growth(1, factor, factor)
    if len(stored.shape) == 1:  # a norm or a bias
        return _Growth(factor, 1, 1)
    if name.endswith("_proj.weight"):
        return _Growth(factor, factor, factor)
    raise InputError("not a tensor of a Llama", where=name)


def _grown(name: str, stored: StoredTensor, growth: _Growth) -> Tensor:
    shape = (stored.shape[0] * growth.rows, *(d * growth.columns for d in stored.shape[1:]))
    return Tensor(name, stored.dtype, shape, partial(_tiles, stored, growth))


def _tiles(stored: StoredTensor, growth: _Growth) -> Iterator[Tile]:
    """The grown rows, all of them as often as asked for. Whole copies follow one another, so that
    query heads keep the KV heads they had."""
    width = int(np.prod(stored.shape[1:])) * growth.columns
    step = max(1, _TILE_VALUES // width)
    for _ in range(growth.rows):
        for start in range(0, stored.shape[0], step):
            rows = stored.read_rows(start, min(start + step, stored.shape[0]))
            values = rows / np.float32(growth.divisor)
            if values.ndim == 2:
                values = np.tile(values, (1, growth.columns))
            yield bf16(values) if stored.dtype == "BF16" else values


def bf16(values: Tile) -> Tile:
    """Bits of float32 values that are exact in bfloat16."""
    bits = values.view(np.uint32)
    if (bits & 0xFFFF).any():
        raise InputError("a weight is too small to be divided exactly", where="bfloat16")
    return (bits >> 16).astype(np.uint16)


def grow_command(work: Callable[[Path, int, Path], None], what: str, source: str) -> None:
    """The command line of what grows something: a folder, a factor, a new folder.

    Args:
        work: Grows.
        what: Says what, in a line.
        source: What the folder holds.
    """
    parser = argparse.ArgumentParser(description=what)
    parser.add_argument("source", type=Path, help=source)
    parser.add_argument("factor", type=int, help="copies of every channel, a power of two")
    parser.add_argument("output", type=Path, help="a new folder")
    options = parser.parse_args()
    try:
        work(options.source, options.factor, options.output)
    except OptcError as error:
        sys.exit(f"error: {error.render()}")


if __name__ == "__main__":
    grow_command(grow, __doc__.splitlines()[0], "Hugging Face folder of a Llama")
