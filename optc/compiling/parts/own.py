"""Halves of an encoder-decoder for which a recipe has a part: whether it can be had here."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from optc.backend import Backend
from optc.compiling.recipes.part import PartRecipe
from optc.compiling.resolving.engines import EngineTarget
from optc.compiling.tensors.stages import Stages
from optc.ir.pipeline.instruments import dump_to

if TYPE_CHECKING:
    from optc.ir.pipeline.instruments import Instrument

#: Key of the part for a decoder's steps; that of the encoder is its role.
DECODER = "decoder"


def own_part(stages: Stages, key: str) -> PartRecipe | None:
    """The recipe's part for one half, if it counts."""
    return stages.recipe.own_parts(stages.asked.backend).get(key)


def unavailable(backend: Backend, engines: Sequence[EngineTarget]) -> str:
    """Why the backend builds nothing here for one of the targets; empty if it does for all."""
    reasons = [backend.available(), *(backend.takes(one.target) for one in engines)]
    return next(filter(None, reasons), "")


def dumps_of(stages: Stages, name: str) -> Sequence[Instrument]:
    """Dumps of graphs, in a folder of that name, if they are asked for."""
    folder = stages.asked.dump_dir
    return [] if folder is None else [dump_to(Path(folder) / name)]
