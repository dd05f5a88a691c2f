"""Checkpoints of a training: tensors as safetensors, the rest as JSON, each written whole or not at
all, so that a training that was stopped goes on where it was."""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor

from optc.compiling.training.result import unwritable
from optc.errors import InputError
from optc.importer.json_file import read_object
from optc.system.whole_file import write_whole

_TENSORS, _STATE, _SETTINGS = "tensors.safetensors", "state.json", "settings.json"
_LAST, _BEST = "last", "best"


class Checkpoints:
    """The last and the best state of a training, in a folder of their own.

    Args:
        folder: Made if it is not there.
        settings: What the training's result depends on, JSON values: a folder of other settings is
            refused.

    Raises:
        InputError: The folder holds the checkpoints of another training, or cannot be written.
    """

    def __init__(self, folder: Path, settings: Mapping[str, Any]) -> None:
        self._folder = folder
        text = json.dumps(settings, sort_keys=True)
        digest = hashlib.sha256(text.encode()).hexdigest()
        file = folder / _SETTINGS
        if file.is_file():
            if read_object(file).get("sha256") != digest:
                raise InputError(
                    "holds the checkpoints of a training with other settings",
                    where=str(folder),
                    hint="repeat the command that began it, or delete the folder",
                )
            return
        stated = json.dumps({"sha256": digest, "settings": settings}, indent=1) + "\n"
        try:
            folder.mkdir(parents=True, exist_ok=True)
            if others := sorted(one.name for one in folder.iterdir()):
                raise InputError(
                    f"holds something that is no checkpoint of optc: {others[0]}",
                    where=str(folder),
                    hint="move it away, or take another folder as --output",
                )
            write_whole(file, stated.encode())
        except OSError as error:
            raise unwritable(error, folder) from error

    def save_last(self, tensors: Mapping[str, Tensor], state: Mapping[str, Any]) -> None:
        """Keep where the training is, in the place of what was kept before.

        Raises:
            InputError: It cannot be written; what was kept before stays.
        """
        self._save(_LAST, tensors, state)

    def save_best(self, tensors: Mapping[str, Tensor], state: Mapping[str, Any]) -> None:
        """Keep the best state so far; raises as `save_last`."""
        self._save(_BEST, tensors, state)

    def last(self) -> tuple[dict[str, Tensor], dict[str, Any]] | None:
        """The last state; None at the start of a training.

        Raises:
            InputError: The checkpoint is damaged.
        """
        return self._load(_LAST)

    def best(self) -> tuple[dict[str, Tensor], dict[str, Any]] | None:
        """The best state; None where there is none.

        Raises:
            InputError: The checkpoint is damaged.
        """
        return self._load(_BEST)

    def remove(self) -> None:
        """Delete all of them: the training has ended. What others put beside them stays."""
        for name in (_LAST, _BEST):
            for suffix in ("", ".new", ".old"):
                shutil.rmtree(self._folder / f"{name}{suffix}", ignore_errors=True)
        (self._folder / _SETTINGS).unlink(missing_ok=True)
        with suppress(OSError):
            self._folder.rmdir()

    def _save(self, name: str, tensors: Mapping[str, Tensor], state: Mapping[str, Any]) -> None:
        """Write beside its place, and rename: a stop between the two renames leaves the old one
        under another name, where `_load` finds it."""
        try:
            self._write(name, tensors, state)
        except (OSError, SafetensorError) as error:
            shutil.rmtree(self._folder / f"{name}.new", ignore_errors=True)
            raise unwritable(error, self._folder) from error

    def _write(self, name: str, tensors: Mapping[str, Tensor], state: Mapping[str, Any]) -> None:
        new, old = (self._folder / f"{name}.{suffix}" for suffix in ("new", "old"))
        place = self._folder / name
        shutil.rmtree(new, ignore_errors=True)
        new.mkdir()
        save_file({key: value.contiguous() for key, value in tensors.items()}, new / _TENSORS)
        (new / _STATE).write_text(json.dumps(state) + "\n")
        if place.exists():
            shutil.rmtree(old, ignore_errors=True)
            place.rename(old)
        new.rename(place)
        shutil.rmtree(old, ignore_errors=True)

    def _load(self, name: str) -> tuple[dict[str, Tensor], dict[str, Any]] | None:
        places = [self._folder / name, self._folder / f"{name}.old"]
        place = next((one for one in places if one.is_dir()), None)
        if place is None:
            return None
        try:
            return load_file(place / _TENSORS), read_object(place / _STATE)
        except (SafetensorError, OSError) as error:
            raise InputError(
                f"a damaged checkpoint: {error}", where=str(place), hint="delete the folder"
            ) from error
