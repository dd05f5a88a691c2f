"""The part of a recipe that concerns decoders which attend to an encoder."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from pydantic import BaseModel, ConfigDict

from optc.ir.forms.decoder import Exported
from optc.ir.pipeline import registry as pass_registry
from optc.ir.pipeline.entries import read_pipeline, with_options
from optc.ir.pipeline.pipeline import MARKS, Pipeline


class DecoderKeys(BaseModel):
    """The keys of the part in a recipe's file."""

    model_config = ConfigDict(extra="forbid")
    backend: str = "tvm"
    pipeline: list[Any]


@dataclass(frozen=True)
class DecoderRecipe:
    """The compile of a decoder of steps.

    Attributes:
        backend: Registry name of the backend.
        pipeline: Its passes, from an exported decoder to the ragged step.
    """

    backend: str
    pipeline: Pipeline

    @classmethod
    def of(cls, keys: DecoderKeys, where: str) -> DecoderRecipe:
        """From a recipe's file.

        Raises:
            InputError: An unknown pass or option, or an order that a pass forbids.
        """
        where = f"{where}, decoder"
        pipeline = read_pipeline(keys.pipeline, pass_registry, where)
        pipeline.validate(Exported)
        return cls(keys.backend, pipeline)

    def to_json(self) -> dict[str, Any]:
        """As stored in the manifest."""
        return {"backend": self.backend, "pipeline": pipeline_json(self.pipeline)}


def with_changes(
    pipeline: Pipeline, decoder: DecoderRecipe | None, changes: Mapping[str, object], where: str
) -> tuple[Pipeline, DecoderRecipe | None]:
    """A recipe's pipeline and its decoder's with other options (``pass.option``); passes that both
    run get them in both.

    Raises:
        InputError: As of `with_options`, where neither runs the pass.
    """
    if decoder is None:
        return with_options(pipeline, changes, where), None
    own, steps = ({one.name for one in p.passes} for p in (pipeline, decoder.pipeline))
    of_steps = {key: value for key, value in changes.items() if key.partition(".")[0] in steps}
    rest = {k: v for k, v in changes.items() if k not in of_steps or k.partition(".")[0] in own}
    changed = with_options(decoder.pipeline, of_steps, where)
    return with_options(pipeline, rest, where), replace(decoder, pipeline=changed)


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
