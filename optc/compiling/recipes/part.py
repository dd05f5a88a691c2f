"""The parts of a recipe that concern one half of an encoder-decoder each."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from pydantic import BaseModel, ConfigDict

from optc.ir.forms.batched import BatchedTensors
from optc.ir.forms.decoder import Exported
from optc.ir.forms.form import Form
from optc.ir.pipeline import registry as pass_registry
from optc.ir.pipeline.entries import read_pipeline, with_options
from optc.ir.pipeline.pipeline import MARKS, Pipeline

#: What the passes of a part begin with, by its key.
PARTS: dict[str, type[Form]] = {"encoder": BatchedTensors, "decoder": Exported}


class PartKeys(BaseModel):
    """The keys of a part in a recipe's file."""

    model_config = ConfigDict(extra="forbid")
    backend: str = "tvm"
    pipeline: list[Any]


@dataclass(frozen=True)
class PartRecipe:
    """The compile of an encoder, or of a decoder's steps.

    Attributes:
        backend: Registry name of the backend.
        pipeline: Its passes.
    """

    backend: str
    pipeline: Pipeline

    def to_json(self) -> dict[str, Any]:
        """As stored in the manifest."""
        return {"backend": self.backend, "pipeline": pipeline_json(self.pipeline)}


def read_parts(keys: Mapping[str, PartKeys | None], where: str) -> dict[str, PartRecipe]:
    """The parts of a recipe's file, by key.

    Raises:
        InputError: An unknown pass or option, or an order that a pass forbids.
    """
    found = {}
    for key, part in keys.items():
        if part is not None:
            pipeline = read_pipeline(part.pipeline, pass_registry, f"{where}, {key}")
            pipeline.validate(PARTS[key])
            found[key] = PartRecipe(part.backend, pipeline)
    return found


def with_changes(
    pipeline: Pipeline, parts: Mapping[str, PartRecipe], changes: Mapping[str, object], where: str
) -> tuple[Pipeline, dict[str, PartRecipe]]:
    """A recipe's pipeline and those of its parts with other options (``pass.option``); a pass that
    several of them run gets them in all.

    Raises:
        InputError: As of `with_options`, where none runs the pass.
    """
    rest, changed = dict(changes), {}
    for key, part in parts.items():
        own = _of(part.pipeline, changes)
        changed[key] = replace(part, pipeline=with_options(part.pipeline, own, where))
        rest = {one: value for one, value in rest.items() if one not in own}
    return with_options(pipeline, rest | _of(pipeline, changes), where), changed


def _of(pipeline: Pipeline, changes: Mapping[str, object]) -> dict[str, object]:
    """The changes that concern passes of a pipeline."""
    names = {one.name for one in pipeline.passes}
    return {key: value for key, value in changes.items() if key.partition(".")[0] in names}


def pipeline_json(pipeline: Pipeline) -> list[dict[str, Any]]:
    """A pipeline as stored in the manifest: without options at their defaults and paths."""
    marks = {mark: getattr(pipeline, mark) for mark in MARKS}
    return [
        {
            "name": one.name,
            "options": one.stated_options(),
            **{mark: one.name in names for mark, names in marks.items()},
        }
        for one in pipeline.passes
    ]
