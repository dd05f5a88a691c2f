"""Grow a layer that drafts by hidden states beside a grown model, without changing its drafts.

    python -m benchmarks.inputs.grow_eagle examples/models/pycode-eagle 4 MODEL-eagle

Layer and model grow by the same factor. What `benchmarks.inputs.grow_model` does to the model's
layers happens to this one: every channel, MLP neuron and head occurs ``factor`` times, and every
weight that reads them is divided by ``factor``. Embedded tokens and hidden states of the grown
model are ``factor`` copies of those of the small one, and so are the layer's guesses. Drafts, and
how often they hold, are those of the trained layer.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

from benchmarks.inputs.grow_model import bf16, check_factor, grow_command, grow_tensor
from benchmarks.inputs.shards import Tensor, Tile, write_shard
from optc.errors import InputError
from optc.importer.additions.eagle import CONFIG_FILE, WEIGHTS_FILE, digest_eagle
from optc.importer.safetensors import StoredTensor, read_header

#: Reads an embedded token and behind it a hidden state: the copies of each lie side by side.
_FC = "eagle.fc.weight"


def grow_eagle(source: Path, factor: int, output: Path) -> None:
    """Write the grown layer into ``output``, which is created.

    Args:
        source: What ``examples/training/train_eagle.py`` wrote, for a Llama.
        factor: Copies of every channel, neuron and head: a power of two.
        output: A folder that does not exist yet.

    Raises:
        InputError: The folder is none, the factor no power of two, a weight too small to be
            divided exactly, or the output exists; nothing is written then.
    """
    check_factor(factor)
    digest_eagle(source)
    if output.exists():
        raise InputError("exists already", where=str(output), hint="name a new folder")
    grown = [
        _grown_fc(stored, factor) if name == _FC else grow_tensor(name, stored, factor)
        for name, stored in read_header(source / WEIGHTS_FILE).items()
    ]
    output.parent.mkdir(parents=True, exist_ok=True)
    with TemporaryDirectory(dir=output.parent, prefix=f".{output.name}.") as temporary:
        folder = Path(temporary, "layer")
        folder.mkdir()
        shutil.copyfile(source / CONFIG_FILE, folder / CONFIG_FILE)
        write_shard(folder / WEIGHTS_FILE, grown)
        folder.rename(output)


def _grown_fc(stored: StoredTensor, factor: int) -> Tensor:
    rows, columns = stored.shape
    return Tensor(
        _FC, stored.dtype, (factor * rows, factor * columns), partial(_fc, stored, factor)
    )


def _fc(stored: StoredTensor, factor: int) -> Iterator[Tile]:
    values = stored.read_rows(0, stored.shape[0]) / np.float32(factor)
    wide = np.hstack([np.tile(half, (1, factor)) for half in np.split(values, 2, axis=1)])
    tile = bf16(wide) if stored.dtype == "BF16" else wide
    for _ in range(factor):
        yield tile


if __name__ == "__main__":
    grow_command(grow_eagle, __doc__.splitlines()[0], "what train_eagle.py wrote")
