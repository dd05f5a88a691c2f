"""What a compile was asked for, checked before any work begins."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from optc.backend import BuildOptions
from optc.driver.compiling.engines import EngineRequest, check_self_draft, parse_engines
from optc.driver.compiling.preflight import (
    check_additions,
    check_config,
    check_context,
    check_measurable,
)
from optc.driver.compiling.preflight_nodes import check_options
from optc.driver.recipes.kv_types import check_kv_type
from optc.driver.recipes.recipe_options import check_text, resolve_recipe
from optc.errors import InputError
from optc.importer.model_folder import model_folder, model_name
from optc.progress import Progress, no_progress
from optc.recipe import Recipe
from optc.units import parse_bytes

#: Longest sequence that an engine is compiled for unless ``max_context`` says otherwise.
DEFAULT_CONTEXT = 32768

#: Chosen by what was measured.
Auto = Literal["auto"]
AUTO: Auto = "auto"


@dataclass(frozen=True)
class CompileOptions:
    """Validated options of one compile.

    Attributes:
        source: The model's folder.
        recipe: With overrides applied.
        output: The artifact's folder.
        engines: What is built, at least one.
        eval_text: Text for the gates; None is the shipped one.
        max_ram_bytes: Most anonymous and shared memory; 0 is no limit.
        gated: Whether gates are measured.
        allow_unmeasured: Whether gates that cannot be measured here are let through.
        keep_failed: Whether a gated-out result is kept beside the output.
        dump_dir: Where the graph is written after every pass; None is nowhere.
        force: Whether an artifact at ``output`` is replaced.
        max_context: Longest sequence in tokens; None is the model's own, within `DEFAULT_CONTEXT`.
        draft: Folder of a model that drafts for this one; None is none.
        draft_recipe: Of a draft model: the recipe without Medusa heads and room for adapters.
        self_draft: First layers that draft for the whole model; ``auto`` chooses how many, None is
            no such engine.
        allow_remote_code: Whether Python code of the model folder may run.
        tune: Whether kernel schedules are measured here.
        schedules: File of kernel schedules; None is none, or with ``tune`` the user's cache.
        progress: Told what goes on.
        warnings: What the user should know, one sentence each.
    """

    source: Path
    recipe: Recipe
    draft_recipe: Recipe
    output: Path
    engines: tuple[EngineRequest, ...]
    eval_text: Path | None = None
    max_ram_bytes: int = 0
    gated: bool = True
    allow_unmeasured: bool = False
    keep_failed: bool = False
    dump_dir: Path | None = None
    force: bool = False
    max_context: int | None = None
    draft: Path | None = None
    self_draft: int | Auto | None = None
    allow_remote_code: bool = False
    tune: bool = False
    schedules: Path | None = None
    progress: Progress = no_progress
    warnings: tuple[str, ...] = ()


def resolve_options(
    model: str | Path,
    recipe: str | Path,
    output: str | Path | None,
    *,
    backend: str | Sequence[str] | None,
    target: str | None,
    set: Iterable[str],
    gate: Iterable[str],
    calibration: str | Path | None,
    eval_text: str | Path | None,
    max_ram: str | int | None,
    max_context: int | None,
    draft: str | Path | None,
    self_draft: int | Auto | None,
    no_gates: bool,
    allow_unmeasured: bool,
    keep_failed: bool,
    dump_dir: str | Path | None,
    force: bool,
    allow_remote_code: bool,
    adapters: str | None,
    medusa: str | Path | None,
    tune: bool,
    schedules: str | Path | None,
    progress: Progress,
) -> CompileOptions:
    """Look everything up by name and check that named files exist.

    Raises:
        InputError: An unknown name, a bad value or a missing file.
        UnavailableError: A backend cannot build here.
        UnsupportedError: An engine cannot keep keys and values of the recipe's type, or has no code
            for its weights, or for adapters or heads that are wanted.
    """
    source, sets = model_folder(Path(model)), tuple(set)
    whole, loaded, warnings = resolve_recipe(
        recipe,
        source,
        set=sets,
        gate=gate,
        calibration=calibration,
        adapters=adapters,
        medusa=medusa,
    )
    engines = parse_engines(backend, target, loaded.backend)
    whole, loaded = (for_engines(r, engines, sets) for r in (whole, loaded))
    check_kv_type(whole, engines)
    check_additions(whole, engines)
    check_options(whole, engines)
    if eval_text is not None:
        check_text(Path(eval_text), "--eval-text")
    if schedules is not None and not tune:
        check_text(Path(schedules), "--schedules")
    if draft is not None and not (model_folder(Path(draft)) / "config.json").is_file():
        raise InputError(f"no model (config.json) in {draft}", where="--draft")
    if self_draft is not None:
        check_self_draft(engines)
        if isinstance(self_draft, str) and self_draft != AUTO:
            raise InputError(
                f"{self_draft!r} layers", where="--self-draft", hint="a number, or auto"
            )
    check_config(source, max_context, self_draft)
    if not (no_gates or allow_unmeasured or keep_failed):
        check_measurable(whole, engines)
    return CompileOptions(
        source=source,
        recipe=whole,
        draft_recipe=loaded,
        output=Path(output) if output else _default_output(source, loaded),
        engines=engines,
        eval_text=None if eval_text is None else Path(eval_text),
        max_ram_bytes=_bytes(max_ram),
        gated=not no_gates,
        allow_unmeasured=allow_unmeasured,
        keep_failed=keep_failed,
        dump_dir=None if dump_dir is None else Path(dump_dir),
        force=force,
        max_context=max_context,
        draft=None if draft is None else Path(draft),
        self_draft=self_draft,
        allow_remote_code=allow_remote_code,
        tune=tune,
        schedules=None if schedules is None else Path(schedules),
        progress=progress,
        warnings=tuple(warnings),
    )


def for_engines(recipe: Recipe, engines: Sequence[EngineRequest], sets: Sequence[str]) -> Recipe:
    """The recipe with what these engines want of it; ``--set`` has the last word."""
    kinds = {kind for e in engines for kind in (e.backend.name, e.target.kind)}
    recipe = recipe.for_kinds(kinds, [text.partition("=")[0] for text in sets])
    return recipe.model_copy(update={"backend": engines[0].backend.name})


def build_limits(options: CompileOptions, model_context: int) -> BuildOptions:
    """Limits of the engines for a model whose own context is ``model_context`` tokens.

    Raises:
        InputError: A longer one is wanted.
    """
    wanted = options.max_context
    if wanted is not None:
        check_context(wanted, model_context)
    return BuildOptions(
        max_context=wanted or min(model_context, DEFAULT_CONTEXT),
        max_ram_bytes=options.max_ram_bytes,
        tune=options.tune,
        schedules=options.schedules,
    )


def _default_output(source: Path, recipe: Recipe) -> Path:
    return Path("artifacts") / f"{model_name(source).rsplit('/', 1)[-1]}-{recipe.name}"


def _bytes(size: str | int | None) -> int:
    return parse_bytes(size, "--max-ram") if isinstance(size, str) else size or 0
