"""Distillation of the target's predictions into what pruning leaves of it, before rounding: the
``distill=10m`` of ``--draft self:…``."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml

from optc.compiling.recipes.recipe import Recipe
from optc.compiling.resolving.draft_recipes import DraftCandidate
from optc.compiling.resolving.draft_spec import PREFIX
from optc.compiling.resolving.memory import tree_bytes
from optc.compiling.resolving.options import ResolvedOptions
from optc.compiling.resolving.trained import float_weights_place, with_trained
from optc.compiling.training.memory import check_training, training_bytes
from optc.compiling.training.student import unread_student
from optc.importer.additions.trained import digest_trained
from optc.ir.pipeline.base import Pass
from optc.proof.reference.text import calibration_text
from optc.system.options.training_options import DistillOptions
from optc.system.processes.child_job import ChildJob, anonymous_bytes
from optc.system.progress import Progress

if TYPE_CHECKING:
    import onnx_ir as ir

#: The minutes are of the training alone: calibrations before it take as long as the model is large.
_LONGEST_S = 7 * 86400.0


@dataclass(frozen=True)
class Distilled:
    """A draft's recipe with trained weights.

    Attributes:
        recipe: The candidate's, with the pass that brings the weights.
        figures: Of the training.
        warnings: One sentence each.
    """

    recipe: Recipe
    figures: dict[str, Any]
    warnings: tuple[str, ...]


def distill_draft(candidate: DraftCandidate, options: ResolvedOptions, scratch: Path) -> Distilled:
    """Train what the candidate's pruning leaves.

    Args:
        candidate: With minutes in its specification.
        options: Of the compile.
        scratch: Folder for what is trained.

    Raises:
        InputError: The text cannot be used.
        UnavailableError: The training took too much memory, or died.
    """
    folder = scratch / f"distilled-{candidate.spec.text.removeprefix(PREFIX)}"
    folder.mkdir()
    recipe, told, trained = (folder / name for name in ("recipe.yaml", "progress", "trained"))
    recipe.write_text(_recipe_file(candidate.recipe), encoding="utf-8")
    asked = options.asked
    texts = asked.draft_text or [str(asked.calibration or calibration_text())]
    wanted = {
        "recipe": str(recipe),
        "text": [str(Path(text).absolute()) for text in texts],
        "calibration": None if asked.calibration is None else str(asked.calibration.absolute()),
        "calibration_cache": asked.calibration_cache and str(asked.calibration_cache.absolute()),
        "minutes": repr(candidate.spec.distill),
        "output": str(trained),
        "allow_remote_code": asked.allow_remote_code,
    }
    job = ChildJob(
        module="optc.compiling.training.child",
        what="the training of the draft",
        where=f"--draft {candidate.spec.text}",
        hint="leave distill out, or train with optc distill and give --draft its folder",
        timeout_s=_LONGEST_S,
    )
    request = {"model": str(options.source.absolute()), "options": wanted, "progress": str(told)}
    left = options.max_ram_bytes and max(options.max_ram_bytes - anonymous_bytes(os.getpid()), 1)
    with job.started(json.dumps(request), left, _teller(told, options.progress)) as finish:
        found = finish()
    recipe_with = with_trained(candidate.recipe, trained, digest_trained(trained), rounded=False)
    return Distilled(recipe_with, found["figures"], tuple(found["warnings"]))


def check_distilled_memory(
    candidate: DraftCandidate, options: ResolvedOptions, reference: ir.Model
) -> None:
    """Check that the training of a draft is predicted to stay within ``--max-ram``, beside this
    process.

    Raises:
        InputError: It is not; says what is predicted.
    """
    if candidate.spec.distill is None or not options.max_ram_bytes:
        return
    pipeline, course = candidate.recipe.pipeline, DistillOptions()
    student = unread_student(reference, pipeline, float_weights_place(pipeline.passes))
    needed = training_bytes(student, reference, course.window, course.batch)
    check_training(
        tree_bytes(os.getpid()) + needed,
        options.max_ram_bytes,
        where=f"--draft {candidate.spec.text}, --max-ram",
        hint="allow more, or leave distill out",
    )


def _recipe_file(recipe: Recipe) -> str:
    """The recipe as its file; texts and folders of passes are given again where it is read."""
    entries = [
        {one.name: _options(one)} if _options(one) else one.name for one in recipe.pipeline.passes
    ]
    return yaml.safe_dump(
        {
            "name": recipe.name,
            "description": "the pipeline of a draft",
            "backend": recipe.backend,
            "pipeline": entries,
        }
    )


def _options(one: Pass) -> dict[str, Any]:
    """The options of a pass for a recipe: the digest of a text comes with the text."""
    return {key: value for key, value in one.stated_options().items() if key != "sha256"}


def _teller(told: Path, progress: Progress) -> Callable[[], None]:
    """Passes on what the child has written, whenever it is called."""

    def tell() -> None:
        if told.exists():
            stage, done, total = json.loads(told.read_text(encoding="utf-8"))
            progress(f"draft: {stage}", done, total)

    return tell
