"""The ladder that ``--recipe auto`` would try for a model, built by ``optc plan`` alone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Unpack

from optc.compiling.ladder.options import resolve_ladder
from optc.compiling.ladder.predict import predict_rungs
from optc.compiling.ladder.record import ladder_json
from optc.compiling.resolving.preflight_tokenizer import without_tokenizer
from optc.compiling.stages.generation import generation_settings
from optc.importer.hub import local_model
from optc.proof.roofline.ceilings import Ceiling
from optc.system.notebook.tables import ladder_html
from optc.system.options import AUTO, PLANNED, CompileOptions
from optc.system.options.keywords import PlanChanges
from optc.system.options.option import with_changes
from optc.system.progress import Progress, no_progress, telling


@dataclass(frozen=True)
class LadderPlan:
    """A ladder for a model.

    Attributes:
        model: The model's name.
        ladder: As in the report of a compile, every rung ``waiting``.
        warnings: What the user should know.
    """

    model: str
    ladder: Mapping[str, Any]
    warnings: tuple[str, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """The JSON object of ``optc plan --recipe auto --json``, without ``warnings``."""
        return {"model": self.model, "recipe": AUTO, "ladder": dict(self.ladder)}

    def __repr__(self) -> str:
        return f"<optc.LadderPlan of {self.model}: {len(self.ladder['rungs'])} recipes>"

    def _repr_html_(self) -> str:
        return ladder_html(self.model, self.ladder)


def plan_ladder(
    model: str | Path,
    *,
    backends: str | Sequence[str] | None = None,
    ceilings: Mapping[str, Ceiling] | None = None,
    progress: Progress = no_progress,
    **changes: Unpack[PlanChanges],
) -> LadderPlan:
    """The recipes that `optc.compile` with ``recipe="auto"`` would try, in their order.

    Args:
        model: As of `optc.compile`.
        backends: ``BACKEND[:TARGET]``, as ``backend`` of `optc.compile`; of several the first one
            orders the recipes.
        ceilings: Of this machine, to predict speeds by; None are assumed ones, as a compile does.
        progress: Told what goes on.
        **changes: Those fields of `CompileOptions` that a plan depends on.

    Raises:
        InputError, UnsupportedError: As of `optc.compile`.
        TypeError: There is no option of a name in ``changes``.
    """
    asked = with_changes(CompileOptions(), {**changes, "recipe": AUTO}, PLANNED)
    asked = with_changes(asked, {"backend": backends, "allow_unmeasured": True})
    source = local_model(model, code=asked.allow_remote_code, progress=progress)
    with telling(progress):
        options = resolve_ladder(source, asked, progress)
    progress("import", 0, 0)
    from optc.importer.import_model import import_model

    imported = import_model(options.compiles[0].source, allow_remote_code=asked.allow_remote_code)
    predictions = predict_rungs(imported, options, ceilings)
    ladder = ladder_json(options, predictions)
    warnings = without_tokenizer(imported.folder) + imported.warnings
    settings = generation_settings(imported).warnings
    return LadderPlan(imported.name, ladder, (*warnings, *settings))
