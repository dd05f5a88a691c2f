"""The result of a training: a folder for ``optc compile --trained``, which is a Hugging Face
folder too where the student has all shapes of its source."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from safetensors import SafetensorError
from safetensors.numpy import save_file

from optc.artifact.atomic_swap import exchange
from optc.errors import InputError
from optc.importer.additions.trained import CODES_FILE, STATE_FILE, WEIGHTS_FILE
from optc.importer.checkpoint import checkpoint_files, read_checkpoint
from optc.importer.imported import ImportedModel
from optc.importer.quantized.settings import settings_of
from optc.importer.safetensors import StoredTensor
from optc.ir.quantized_rows import QuantizedRows, QuantizedTile
from optc.ir.tensors import ModelTensor
from optc.ir.weights import Array
from optc.system.foreign.file import read_file
from optc.system.safe_json import JSONError, parse_json
from optc.system.sources.steady import check_steady

_SCHEMA = "optc.training.v1"


@dataclass(frozen=True)
class Rounded:
    """A rounded weight: its grid, and its rows as training left them."""

    grid: QuantizedRows
    tile: QuantizedTile


def check_output(folder: Path, *, force: bool) -> None:
    """Refuse a place that holds something.

    Raises:
        InputError: It does, and ``force`` is not set or what is there is of no training.
    """
    if not folder.exists() or (folder.is_dir() and not any(folder.iterdir())):
        return
    trained = _is_result(folder)
    if not (force and trained):
        hint = "take another folder" + (", or --force" if trained else "")
        raise InputError("there is something already", where=str(folder), hint=hint)


def _is_result(folder: Path) -> bool:
    """True for a folder that a training of optc wrote: others have files of that name, too."""
    try:
        stated = parse_json(read_file(folder / STATE_FILE))
    except (OSError, JSONError):
        return False
    return isinstance(stated, dict) and stated.get("schema") == _SCHEMA


def write_result(
    folder: Path,
    tensors: Mapping[str, Array],
    rounded: Mapping[str, Rounded],
    stated: Mapping[str, Any],
    source: ImportedModel | None,
) -> None:
    """Write a result beside its place, and move it there.

    Args:
        folder: The place.
        tensors: Float tensors by name, by rows.
        rounded: Rounded weights of linear layers by name.
        stated: JSON values for training.json.
        source: Makes it a Hugging Face folder: its other tensors, config and tokenizer are copied.

    Raises:
        InputError: It cannot be written, or a source changed meanwhile.
    """
    partial = folder.with_name(f".{folder.name}.partial-{os.getpid()}")
    try:
        partial.mkdir(parents=True)
        _write(partial, tensors, rounded, stated, source)
        check_steady()  # nothing is written of two models
        if folder.exists():
            exchange(partial, folder)
        else:
            partial.rename(folder)
    except (OSError, SafetensorError) as error:
        raise unwritable(error, folder) from error
    finally:
        shutil.rmtree(partial, ignore_errors=True)


def unwritable(error: OSError | SafetensorError, folder: Path) -> InputError:
    """The error for a folder that cannot be written, such as on a full disk."""
    reason = error.strerror if isinstance(error, OSError) else None
    return InputError(
        f"cannot be written: {reason or error}",
        where=str(folder),
        hint="free space there; the same command goes on where the training was",
    )


def same_as_checkpoint(imported: ImportedModel, tensors: list[ModelTensor]) -> bool:
    """True if every tensor of the model's dense form is a tensor of its checkpoint, under its name:
    what is trained is then a checkpoint of the same model. One that is quantized is not."""
    files = checkpoint_files(imported.folder)
    if files[0].suffix != ".safetensors" or settings_of(imported.config) is not None:
        return False
    checkpoint = read_checkpoint(files)
    return all(_same(checkpoint.get(one.name), one) for one in tensors)


def _same(stored: StoredTensor | None, tensor: ModelTensor) -> bool:
    if stored is None or stored.shape != tensor.shape:
        return False
    return all(
        np.array_equal(
            stored.read_rows(start, stop), np.asarray(tensor.weight.read_rows(start, stop))
        )
        for start, stop in tensor.weight.tiles()
    )


def _write(
    folder: Path,
    tensors: Mapping[str, Array],
    rounded: Mapping[str, Rounded],
    stated: Mapping[str, Any],
    source: ImportedModel | None,
) -> None:
    whole = dict(tensors)
    if source is not None:
        others = read_checkpoint(checkpoint_files(source.folder))
        whole |= {n: t.read_rows(0, t.shape[0]) for n, t in others.items() if n not in whole}
        _write_config(folder, source)
    save_file(_contiguous(whole), folder / WEIGHTS_FILE, metadata={"format": "pt"})
    grids = {}
    parts: dict[str, Array] = {}
    for name, one in rounded.items():
        grid = one.grid
        grids[name] = {
            "bits": grid.bits,
            "group_size": grid.group_size,
            "symmetric": grid.symmetric,
            "integer_scales": grid.integer_scales,
        }
        for part, array in one.tile._asdict().items():
            if array is not None:
                parts[f"{name}:{part}"] = array
    if parts:
        save_file(_contiguous(parts), folder / CODES_FILE)
    state = {"schema": _SCHEMA, **stated, "tensors": sorted(tensors), "rounded": grids}
    (folder / STATE_FILE).write_text(json.dumps(state, indent=1, sort_keys=True) + "\n")


def _write_config(folder: Path, source: ImportedModel) -> None:
    """The source's, of float32, and its tokenizer's files."""
    config = dict(source.config)
    for key in ("torch_dtype", "dtype"):
        if key in config:
            config[key] = "float32"
    (folder / "config.json").write_text(json.dumps(config, indent=2) + "\n")
    for file in source.tokenizer_files:
        shutil.copyfile(file, folder / file.name)


def _contiguous(arrays: Mapping[str, Array]) -> dict[str, Array]:
    return {name: np.ascontiguousarray(array) for name, array in arrays.items()}
