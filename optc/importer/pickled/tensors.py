"""Tensors of checkpoints that ``torch.save`` wrote (``pytorch_model.bin``), read by rows."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

from optc.errors import InputError
from optc.importer.safetensors import STORED_TYPES, StoredTensor
from optc.system.processes.child_job import ChildJob

SUFFIX = ".bin"
SINGLE = "pytorch_model.bin"
INDEX = "pytorch_model.bin.index.json"
INDEX_SUFFIX = ".bin.index.json"

_READER = ChildJob(
    module="optc.importer.pickled.child",
    what="the reader of PyTorch's checkpoints",
    where="pytorch_model.bin",
    hint="give the weights as safetensors",
    timeout_s=600.0,
)
#: Anonymous memory of the reader: PyTorch itself, and names and shapes.
_MOST_BYTES = 4 << 30


def read_pickled(files: Sequence[Path], *, every: bool = False) -> dict[str, StoredTensor]:
    """Every float tensor of ``files`` by name; with ``every`` those of all types.

    Raises:
        InputError: A file is damaged, or holds what ``torch.load(weights_only=True)`` refuses, or
            two files hold the same tensor.
        UnsupportedError: A tensor does not lie in its file as it is.
        UnavailableError: The reader crashed, or took too long or too much memory.
    """
    found: dict[str, StoredTensor] = {}
    places = _READER.run(json.dumps([str(file.absolute()) for file in files]), _MOST_BYTES)
    for file, tensors in zip(files, places, strict=True):
        for name, (dtype, shape, offset) in tensors.items():
            if not (every or dtype in STORED_TYPES):
                continue
            if name in found:
                raise InputError(f"also in {found[name].file.name}", where=f"{file}: {name}")
            found[name] = StoredTensor(file, name, dtype, tuple(shape), offset)
    return found
