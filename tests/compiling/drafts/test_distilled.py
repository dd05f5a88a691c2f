"""A draft's training is refused before the target is built where it takes too much memory."""

from __future__ import annotations

from dataclasses import dataclass, replace

import pytest

from optc.compiling.drafts import distilled
from optc.compiling.drafts.distilled import check_distilled_memory
from optc.compiling.recipes.recipe import load_recipe
from optc.compiling.recipes.recipe_additions import with_structures_pruned
from optc.compiling.resolving.draft_recipes import DraftCandidate
from optc.compiling.resolving.draft_spec import parse_draft
from optc.compiling.training.memory import training_bytes
from optc.errors import InputError
from optc.passes.calibrating.reads_text import ReadsText
from tests.support.dense_models import dense_model


@dataclass(frozen=True)
class Limited:
    """What of the options of a compile is read."""

    max_ram_bytes: int


def candidate(text: str) -> DraftCandidate:
    (spec,) = parse_draft(text)
    wanted = {"depth": spec.depth, "width": spec.width}
    recipe = with_structures_pruned(load_recipe("fp32"), wanted)
    passes = [
        replace(one, folder="model", text="text") if isinstance(one, ReadsText) else one
        for one in recipe.pipeline.passes
    ]
    pipeline = replace(recipe.pipeline, passes=tuple(passes))
    return DraftCandidate(spec, replace(recipe, pipeline=pipeline))


@pytest.fixture(autouse=True)
def present(monkeypatch: pytest.MonkeyPatch) -> None:
    """Bytes of the compile's own process."""
    monkeypatch.setattr(distilled, "tree_bytes", lambda pid: 1000)


def test_the_pruned_student_counts_and_the_compile_beside_it() -> None:
    model, one = dense_model(4), candidate("self:depth=0.5,distill=10m")
    smaller = training_bytes(dense_model(2), model, 128, 8) + 1000
    check_distilled_memory(one, Limited(smaller), model)  # type: ignore[arg-type]
    with pytest.raises(InputError) as caught:
        check_distilled_memory(one, Limited(smaller - 2_000_000), model)  # type: ignore[arg-type]
    message = str(caught.value)
    assert message.startswith(
        "--draft self:depth=0.5,distill=10m, --max-ram: the training is predicted to need "
    )
    assert message.endswith("are allowed (allow more, or leave distill out)")


def test_what_is_not_trained_or_not_limited_is_taken() -> None:
    model = dense_model(2)
    check_distilled_memory(candidate("self:depth=0.5"), Limited(1), model)  # type: ignore[arg-type]
    trained = candidate("self:depth=0.5,distill=10m")
    check_distilled_memory(trained, Limited(0), model)  # type: ignore[arg-type]
