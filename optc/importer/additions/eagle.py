"""A folder with a layer that drafts by a model's hidden states: its files and their digest."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from optc.errors import InputError
from optc.importer.json_file import read_object
from optc.importer.safetensors import StoredTensor, read_header
from optc.importer.source_digest import digest_trained

CONFIG_FILE = "config.json"
WEIGHTS_FILE = "eagle.safetensors"
HINT = "train a layer for this model with examples/training/train_eagle.py"


def digest_eagle(folder: Path) -> str:
    """sha256 (hex) over names and contents of the files, wherever the folder lies.

    Raises:
        InputError: A file is missing, or the weights are damaged or not finite.
    """
    digest = digest_trained(folder, CONFIG_FILE, WEIGHTS_FILE, HINT)
    read_object(folder / CONFIG_FILE, hint=HINT)
    return digest


def read_eagle(folder: Path, shapes: Mapping[str, tuple[int, ...]]) -> dict[str, StoredTensor]:
    """The tensors in ``folder`` by name.

    Args:
        folder: What ``examples/training/train_eagle.py`` wrote.
        shapes: Of all that there must be, by name.

    Raises:
        InputError: The file is missing or damaged, or a tensor is missing, of another shape, or one
            too many.
    """
    file = folder / WEIGHTS_FILE
    if not file.is_file():
        raise InputError(f"no {WEIGHTS_FILE}", where=str(folder), hint=HINT)
    tensors = read_header(file)
    for name, shape in shapes.items():
        if name not in tensors or tensors[name].shape != shape:
            has = list(tensors[name].shape) if name in tensors else "nothing"
            raise InputError(
                f"{name} should be of shape {list(shape)}, there is {has}",
                where=str(file),
                hint=HINT,
            )
    strange = sorted(tensors.keys() - shapes.keys())
    if strange:
        raise InputError(f"{strange[0]} is none of the layer's", where=str(file), hint=HINT)
    return tensors
