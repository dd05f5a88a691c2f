"""Calibrations on disk, by a digest of all that they depend on: model, text, pass and code.

An entry is a folder with its arrays and ``entry.json``. It is written beside its place and renamed,
so that compiles that run at once never see a half, and every byte has a digest that is checked
when it is read: a damaged entry is removed, and the calibration is computed again.

Compiles keep calibrations in the user's cache folder unless they are told another one. There, the
entries that were not used for longest go when all together take more than `MOST_BYTES`, and what
cannot be written only costs time.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import tempfile
import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from optc.errors import InputError
from optc.ir.weights import Array
from optc.proof.reference.calibration import CalibrationStore, StatisticGroup, digest_array
from optc.system.cache_folder import cache_folder

#: What computes statistics, and how entries are written: another number finds no old entry.
VERSION = 3
_INDEX = "entry.json"
#: What the user's cache folder keeps of calibrations, and what it leaves free on the disk.
MOST_BYTES = 8 << 30
_FREE_BYTES = 4 << 30
#: Seconds after which half an entry is that of a compile that was killed.
_ABANDONED_S = 24 * 3600.0


class DamagedEntryError(Exception):
    """An entry is not as it was written."""


@dataclass(frozen=True)
class CalibrationCache:
    """Entries in a folder, which is made when the first one is kept.

    Attributes:
        folder: Where they lie, one folder each.
        most_bytes: What they may take together; 0 is no bound. Within a bound, what cannot be
            written is left out.
    """

    folder: Path
    most_bytes: int = 0

    def load(self, key: str, store: CalibrationStore) -> dict[str, Any] | None:
        """Put an entry's arrays into ``store``; its facts, or None if there is no entry.

        Args:
            key: Hex digest of what the calibration depends on.
            store: Takes the arrays, once all of them are checked.

        Raises:
            DamagedEntryError: It was not as it was written, and is removed.
        """
        found = self.read(key)
        if found is None:
            return None
        facts, groups = found
        for group in groups:
            store.put(group.weights, group.statistic, group.array)
        return facts

    def read(self, key: str) -> tuple[dict[str, Any], list[StatisticGroup]] | None:
        """An entry's facts and arrays, mapped read-only, all of them checked; None if there is no
        entry.

        Raises:
            DamagedEntryError: It was not as it was written, and is removed.
        """
        place = self.folder / key
        try:
            found = _read(place)
            os.utime(place)  # used now
            return found
        except FileNotFoundError:
            if not place.exists():
                return None
            self.remove(key)
            raise DamagedEntryError(key) from None
        except (OSError, ValueError, KeyError, TypeError) as error:
            self.remove(key)
            raise DamagedEntryError(key) from error

    def keys(self, start: str) -> list[str]:
        """Keys of the entries whose keys begin so, sorted."""
        if not self.folder.is_dir():
            return []
        return sorted(place.name for place in self.folder.iterdir() if place.name.startswith(start))

    def save(self, key: str, groups: Iterable[StatisticGroup], facts: dict[str, Any]) -> None:
        """Keep arrays and facts (JSON values); another compile's entry of the same key stays.

        Raises:
            InputError: The folder cannot be written, and entries have no bound.
        """
        kept = list(groups)
        size = sum(group.array.nbytes for group in kept)
        if self.most_bytes and not self._has_room(size):
            return
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            part = Path(tempfile.mkdtemp(prefix=f".{key[:16]}.", dir=self.folder))
            try:
                _write(part, kept, facts)
                if not (self.folder / key).exists():
                    os.replace(part, self.folder / key)
            finally:
                shutil.rmtree(part, ignore_errors=True)
        except OSError as error:
            if (self.folder / key).exists() or self.most_bytes:  # another compile was first
                return
            raise InputError(
                f"cannot keep the calibration: {error.strerror}",
                where=str(self.folder),
                hint="free space, or name a writable folder with --calibration-cache",
            ) from error

    def _has_room(self, size: int) -> bool:
        """True if so many bytes may be added; the entries not used for longest go for them."""
        if size > self.most_bytes:
            return False
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            places = [place for place in self.folder.iterdir() if place.is_dir()]
            entries = sorted((_used_and_size(place), place) for place in places)
            free = shutil.disk_usage(self.folder).free
        except OSError:  # another compile removes something, or the folder is not ours to write
            return False
        total = sum(taken for (_, taken), _ in entries)
        for (used, taken), place in entries:
            abandoned = place.name.startswith(".") and used < time.time() - _ABANDONED_S
            if abandoned or (total + size > self.most_bytes and not place.name.startswith(".")):
                shutil.rmtree(place, ignore_errors=True)
                total, free = total - taken, free + taken
        return total + size <= self.most_bytes and free - size >= _FREE_BYTES

    def remove(self, key: str) -> None:
        """Remove an entry, if it is there."""
        shutil.rmtree(self.folder / key, ignore_errors=True)


def cache_at(folder: str) -> CalibrationCache:
    """The cache in ``folder``: bounded where it is the user's (`user_calibrations`)."""
    place = Path(folder)
    return CalibrationCache(place, MOST_BYTES if place == user_calibrations() else 0)


def user_calibrations() -> Path:
    """The default folder of calibrations; it may not exist."""
    return cache_folder() / "calibrations"


def _used_and_size(place: Path) -> tuple[float, int]:
    """The time of an entry's last use, and its bytes."""
    return place.stat().st_mtime, sum(file.stat().st_size for file in place.iterdir())


def _write(part: Path, groups: Iterable[StatisticGroup], facts: dict[str, Any]) -> None:
    arrays = []
    for index, group in enumerate(groups):
        np.save(part / f"{index}.npy", group.array)
        arrays.append(
            {
                "weights": list(group.weights),
                "statistic": group.statistic,
                "file": f"{index}.npy",
                "sha256": digest_array(group.array),
            }
        )
    content = {"facts": facts, "arrays": arrays}
    index_text = json.dumps({"content": content, "sha256": _digest(content)})
    (part / _INDEX).write_text(index_text, "utf-8")


def _read(place: Path) -> tuple[dict[str, Any], list[StatisticGroup]]:
    """Facts and arrays, mapped; all were checked.

    Raises:
        OSError, ValueError, KeyError, TypeError: Something is missing or not as it was written.
    """
    index = json.loads((place / _INDEX).read_text("utf-8"))
    content = index["content"]
    if _digest(content) != index["sha256"]:
        raise ValueError("another digest")
    groups = []
    for one in content["arrays"]:
        array: Array = np.load(place / Path(one["file"]).name, mmap_mode="r")
        if digest_array(array) != one["sha256"]:
            raise ValueError("another digest")
        groups.append(StatisticGroup(tuple(one["weights"]), one["statistic"], array))
    return content["facts"], groups


def _digest(content: object) -> str:
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()
