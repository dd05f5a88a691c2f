"""The options of a compile, looked up and checked before any work begins."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from optc.artifact.store.local import store_root
from optc.backend import BuildOptions
from optc.compiling.recipes.recipe import Recipe
from optc.compiling.resolving.draft_recipes import (
    DraftCandidate,
    check_distilled,
    check_draft_vocabulary,
    draft_candidates,
)
from optc.compiling.resolving.draft_spec import DraftSpec, parse_draft
from optc.compiling.resolving.engines import (
    EngineTarget,
    check_layer,
    check_self_draft,
    kinds_of,
    parse_engines,
)
from optc.compiling.resolving.kv_types import check_kv_type
from optc.compiling.resolving.preflight import (
    check_additions,
    check_config,
    check_context,
    check_measurable,
)
from optc.compiling.resolving.preflight_nodes import check_options
from optc.compiling.resolving.preflight_tokenizer import check_tokenizer, without_tokenizer
from optc.compiling.resolving.recipe_options import check_text, resolve_recipe, with_local_files
from optc.errors import InputError
from optc.importer.folders.given_model import given_model
from optc.importer.hub import HubModel, hub_model
from optc.importer.model_folder import model_folder, model_name
from optc.proof.conversations.read import read_texts
from optc.system.hardware.machine import this_machine
from optc.system.options import AUTO, CompileOptions
from optc.system.progress import Progress, no_progress
from optc.system.units import parse_memory

#: Longest sequence that an engine is compiled for unless ``max_context`` says otherwise.
DEFAULT_CONTEXT = 32768


@dataclass(frozen=True)
class ResolvedOptions:
    """A compile that may begin.

    Attributes:
        asked: What the user said.
        source: The model's folder.
        recipe: With overrides applied.
        draft_recipe: Of a draft model: the recipe without Medusa heads and room for adapters.
        output: The artifact's folder.
        engines: What is built, at least one.
        max_ram_bytes: Most anonymous and shared memory; 0 is no limit.
        progress: Told what goes on.
        warnings: What the user should know, one sentence each.
        draft_folder: Of a draft model; None is none.
        candidates: Drafts made of the target, of which there will be one at most.
        hub, draft_hub: Where ``source`` and ``draft_folder`` come from, if their weights may still
            have to be downloaded.
    """

    asked: CompileOptions
    source: Path
    recipe: Recipe
    draft_recipe: Recipe
    output: Path
    engines: tuple[EngineTarget, ...]
    max_ram_bytes: int = 0
    progress: Progress = no_progress
    warnings: tuple[str, ...] = ()
    draft_folder: Path | None = None
    candidates: tuple[DraftCandidate, ...] = ()
    hub: HubModel | None = None
    draft_hub: HubModel | None = None

    def for_draft(self) -> ResolvedOptions:
        """The same with the recipe of a draft model; its graphs are neither dumped nor kept."""
        asked = replace(self.asked, dump_dir=None, bisect=False)
        return replace(self, asked=asked, recipe=self.draft_recipe)


def resolve_options(
    model: str | Path, asked: CompileOptions, progress: Progress = no_progress
) -> ResolvedOptions:
    """Look everything up by name and check that named files exist.

    Raises:
        InputError: An unknown name, a bad value or a missing file.
        UnavailableError: A backend cannot build here.
        UnsupportedError: An engine cannot keep keys and values of the recipe's type, or has no code
            for its weights, or for adapters or heads that are wanted.
    """
    source, named = given_model(model, base=asked.base, code=asked.allow_remote_code)
    asked = with_local_files(asked, progress)
    whole, loaded, warnings = resolve_recipe(source, asked)
    engines = parse_engines(asked.backend, asked.target, loaded.backend)
    whole, loaded = (for_engines(r, engines, asked.set) for r in (whole, loaded))
    check_kv_type(whole, engines)
    check_additions(whole, engines)
    check_options(whole, engines)
    specs = () if asked.draft is None else parse_draft(str(asked.draft))
    folder, draft_hub = (None, None) if specs else _draft_model(asked)
    _check_files(asked, folder)
    _check_choice(specs, engines)
    check_distilled(specs, asked, whole)
    check_draft_vocabulary(folder, whole)
    candidates = draft_candidates(specs, loaded, asked, source, engines)
    if asked.eagle is not None:
        check_layer(engines)
    if asked.self_draft is not None:
        check_self_draft(engines)
        if isinstance(asked.self_draft, str) and asked.self_draft != AUTO:
            raise InputError(
                f"{asked.self_draft!r} layers", where="--self-draft", hint="a number, or auto"
            )
    check_tokenizer(source, asked, whole, specs)
    check_config(source, asked.max_context, asked.self_draft)
    if not (asked.no_gates or asked.allow_unmeasured or asked.keep_failed):
        check_measurable(whole, engines)
    return ResolvedOptions(
        asked,
        source,
        recipe=whole,
        draft_recipe=loaded,
        output=asked.output or default_output(source, loaded.name),
        engines=engines,
        max_ram_bytes=limit_of(asked.max_ram),
        progress=progress,
        warnings=(*warnings, *without_tokenizer(source)),
        draft_folder=folder,
        candidates=candidates,
        hub=named,
        draft_hub=draft_hub,
    )


def _draft_model(asked: CompileOptions) -> tuple[Path | None, HubModel | None]:
    """Folder of the draft model, and where its weights may have to be downloaded from."""
    if asked.draft is None:
        return None, None
    named = hub_model(asked.draft, code=asked.allow_remote_code)
    return (Path(asked.draft), None) if named is None else (named.fetch_small(), named)


def _check_choice(specs: Sequence[DraftSpec], engines: Sequence[EngineTarget]) -> None:
    """Refuse to choose among drafts where no engine runs whose gain could be measured."""
    if len(specs) > 1 and all(this_machine().misfit(engine.target) for engine in engines):
        raise InputError(
            "none of the engines runs on this machine, and what drafts gain cannot be measured",
            where="--draft self:auto",
            hint=f"name one: --draft {specs[0].text}",
        )


def _check_files(asked: CompileOptions, draft: Path | None) -> None:
    if asked.eval_text is not None:
        check_text(asked.eval_text, "--eval-text")
        read_texts(asked.eval_text)
    if draft is not None and not (model_folder(draft) / "config.json").is_file():
        raise InputError(f"no model (config.json) in {draft}", where="--draft")


def for_engines(recipe: Recipe, engines: Sequence[EngineTarget], sets: Sequence[str]) -> Recipe:
    """The recipe with what these engines want of it; ``--set`` has the last word."""
    recipe = recipe.for_kinds(kinds_of(engines), [text.partition("=")[0] for text in sets])
    return replace(recipe, backend=engines[0].backend.name)


def build_limits(options: ResolvedOptions, model_context: int) -> BuildOptions:
    """Limits of the engines for a model whose own context is ``model_context`` tokens.

    Raises:
        InputError: A longer one is wanted, or one without room for an answer.
    """
    wanted = options.asked.max_context
    context = min(model_context, DEFAULT_CONTEXT) if wanted is None else wanted
    check_context(context, model_context)
    return BuildOptions(
        max_context=context,
        max_ram_bytes=options.max_ram_bytes,
    )


def default_output(source: Path, recipe: str) -> Path:
    """The default output folder of an artifact of the model in ``source``."""
    return store_root() / f"{model_name(source).rsplit('/', 1)[-1]}-{recipe}"


def limit_of(size: str | int | None) -> int:
    """The bytes of ``--max-ram``; 0 is no limit.

    Raises:
        InputError: It is no size, or one without a unit.
    """
    return parse_memory(size, "--max-ram") if size else 0
