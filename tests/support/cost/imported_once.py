"""Models that several tests compile are exported once.

PyTorch's export of the three graphs of a tiny one takes five seconds or more, up to half of a
compile; that of an encoder a second or two, which is most of one.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any, TypeVar

import pytest

from optc.importer.tensors.diffusion import ImportedDiffusion
from optc.importer.tensors.imported import ImportedTensors
from optc.importer.tensors.speech import ImportedSpeech
from optc.importer.tensors.text_to_text import ImportedTextToText

Imported = TypeVar(
    "Imported", ImportedSpeech, ImportedTextToText, ImportedDiffusion, ImportedTensors
)


def import_once(
    patch: pytest.MonkeyPatch, module: ModuleType, load: Callable[[Path], Imported]
) -> None:
    """From now on ``module`` imports a folder once by ``load``, by which it knows it, as long as no
    file of it changes; every compile gets graphs of its own."""

    @cache
    def kept(folder: Path, files: tuple[tuple[str, int, int], ...]) -> Imported:
        return _with_one_step(load(folder))

    def again(folder: Path) -> Imported:
        files = ((one, one.stat()) for one in sorted(Path(folder).rglob("*")))
        found = kept(folder, tuple((str(a), b.st_size, b.st_mtime_ns) for a, b in files))
        return _of_its_own(found)

    patch.setattr(module, load.__name__, again)


def _with_one_step(found: Imported) -> Imported:
    """The same, whose decoder without a cache is exported once, too."""
    if isinstance(found, ImportedDiffusion | ImportedTensors):
        return found
    step = cache(found.models.export_step)
    return replace(found, models=replace(found.models, export_step=lambda: step().clone()))


def _of_its_own(found: Imported) -> Imported:
    """The same with copies of graphs, which a compile may change and give samples."""
    if isinstance(found, ImportedTensors):
        alone: Imported = _copy(found)
        return alone
    if isinstance(found, ImportedDiffusion):
        return replace(found, parts={role: _copy(one) for role, one in found.parts.items()})
    models = found.models
    own = replace(models, encoder=_copy(models.encoder), decoder=_copy(models.decoder))
    return replace(found, models=own)


def _copy(part: ImportedTensors) -> Any:
    return replace(part, model=part.model.clone())
