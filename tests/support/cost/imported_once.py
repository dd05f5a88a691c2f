"""Encoder-decoders that several tests compile are exported once.

PyTorch's export of the three graphs of a tiny one takes five seconds or more, up to half of a
compile.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import TypeVar

import pytest

from optc.importer.tensors.encoder_decoder import ImportedHalves
from optc.importer.tensors.imported import ImportedTensors
from optc.importer.tensors.speech import ImportedSpeech
from optc.importer.tensors.text_to_text import ImportedRewriter

Imported = TypeVar("Imported", ImportedSpeech, ImportedRewriter)


def import_once(
    patch: pytest.MonkeyPatch, module: ModuleType, load: Callable[[Path], Imported]
) -> None:
    """From now on ``module`` imports a folder once by ``load``, by which it knows it, as long as no
    file of it changes; every compile gets graphs of its own."""

    @cache
    def kept(folder: Path, files: tuple[tuple[str, int, int], ...]) -> Imported:
        found = load(folder)
        step = cache(found.halves.export_step)
        halves = replace(found.halves, export_step=lambda: step().clone())
        return replace(found, halves=halves)

    def again(folder: Path) -> Imported:
        files = ((one, one.stat()) for one in sorted(Path(folder).rglob("*")))
        found = kept(folder, tuple((str(a), b.st_size, b.st_mtime_ns) for a, b in files))
        return replace(found, halves=of_its_own(found.halves))

    patch.setattr(module, load.__name__, again)


def of_its_own(halves: ImportedHalves) -> ImportedHalves:
    """The same graphs, which a compile may change and give samples."""
    return replace(halves, encoder=_copy(halves.encoder), decoder=_copy(halves.decoder))


def _copy(part: ImportedTensors) -> ImportedTensors:
    return replace(part, model=part.model.clone())
