"""The draft model of a compile: engines of their own in the same artifact (``--draft MODEL``)."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from optc.artifact.manifest import Source, TokenizerEntry
from optc.artifact.writer import ArtifactWriter
from optc.backend import BuildOptions
from optc.compiling.building.built_engine import BuiltEngine, EngineBuilder
from optc.compiling.drafts.distilled import check_distilled_memory
from optc.compiling.lowering.lowering import Lowered, lower, lower_again
from optc.compiling.resolving.limits import check_disk
from optc.compiling.resolving.options import ResolvedOptions
from optc.compiling.resolving.tokenizer import write_tokenizer
from optc.errors import InputError
from optc.importer import import_model as importer
from optc.importer.imported import ImportedModel
from optc.ir.graph import width
from optc.runtime.speculative.drafters.draft_artifact import check_same_tokenizer

if TYPE_CHECKING:
    import onnx_ir as ir

ROLE = "draft"
_SCRATCH = "draft-tokenizer"


@dataclass(frozen=True)
class Draft:
    """Engines that draft, one for each target engine.

    Attributes:
        role: Theirs.
        engines: BuiltEngine, in the order of the target engines.
        report: Passes and facts, for the report.
        warnings: What the user should know, one sentence each.
    """

    role: str
    engines: tuple[BuiltEngine, ...]
    report: dict[str, Any]
    warnings: tuple[str, ...] = ()


def import_draft(
    options: ResolvedOptions,
    writer: ArtifactWriter,
    target: Lowered,
    tokenizer: TokenizerEntry | None,
) -> ImportedModel | None:
    """The draft model, or what will be made of the target, checked before the target is built.

    Args:
        options: Of the compile.
        writer: Of the artifact.
        target: The target.
        tokenizer: The target's.

    Returns:
        None where the draft is made of the target.

    Raises:
        InputError: The folder is no model, its tokenizer or vocabulary is not the target's, or
            what is asked for cannot be made of the target.
        UnavailableError: The draft's weights cannot be downloaded.
        UnsupportedError: Something in the draft is not recognized.
    """
    source, vocabulary = options.draft_folder, width(target.model.graph.outputs[0])
    if source is None:
        _check_candidates(options, target.reference, tokenizer)
        return None
    if options.draft_hub is not None:
        options.draft_hub.fetch_weights(source, options.progress)
    imported = importer.import_model(source, allow_remote_code=options.asked.allow_remote_code)
    _check_tokenizer(imported, writer, tokenizer, options.asked.allow_remote_code)
    own = width(imported.model.graph.outputs[0])
    if own != vocabulary:
        raise InputError(
            f"the draft model knows {own} tokens, the target {vocabulary}",
            where="--draft",
            hint="a draft must have the target's vocabulary",
        )
    return imported


def build_draft(
    options: ResolvedOptions,
    imported: ImportedModel,
    writer: ArtifactWriter,
    targets: Sequence[BuiltEngine],
) -> Draft:
    """Compile a draft model with the recipe of the target, beside it: for each target engine one of
    the same backend and target, since both run on the same machine.

    They are not gated: the target verifies every token that they draft.

    Args:
        options: Of the compile.
        imported: The draft model, from `import_draft`.
        writer: Of the artifact.
        targets: The target's engines.

    Raises:
        UnsupportedError: Something in the draft cannot be lowered.
    """
    own = options.for_draft()
    lowered = lower(imported.model, own)
    check_disk(lowered.model, writer)
    limits = draft_limits(own, targets, imported.max_context)
    described = Source(imported.name, imported.source_digest, imported.family, imported.config)
    builder = EngineBuilder(writer, own.engines, described)
    engines = tuple(builder.build_all(ROLE, lowered.model, lambda request: limits))
    warnings = tuple(f"draft: {text}" for text in (*imported.warnings, *lowered.warnings))
    return Draft(ROLE, engines, {"passes": [run.to_json() for run in lowered.runs]}, warnings)


def _check_candidates(
    options: ResolvedOptions, reference: ir.Model, tokenizer: TokenizerEntry | None
) -> None:
    """Refuse what cannot be made of the target, takes too much memory to train, or cannot be
    chosen without text."""
    candidates = options.candidates
    for candidate in candidates:
        own = replace(options.for_draft(), recipe=candidate.recipe)
        try:
            lower_again(reference.clone(), own, dry=True)
        except InputError as error:
            raise type(error)(
                error.message,
                where=f"--draft {candidate.spec.text}, {error.where}",
                hint=error.hint,
            ) from error
        check_distilled_memory(candidate, options, reference)
    if len(candidates) > 1 and tokenizer is None:
        raise InputError(
            "the model has no tokenizer, and no text to choose by",
            where="--draft self:auto",
            hint=f"name one: --draft {candidates[0].spec.text}",
        )


def draft_limits(
    options: ResolvedOptions, targets: Sequence[BuiltEngine], max_context: int
) -> BuildOptions:
    """Limits of engines that draft for ``targets`` and are of a model of this context."""
    return BuildOptions(
        max_context=min(max_context, *(built.entry.spec.max_context for built in targets)),
        max_ram_bytes=options.max_ram_bytes,
    )


def _check_tokenizer(
    imported: ImportedModel,
    writer: ArtifactWriter,
    target: TokenizerEntry | None,
    allow_remote_code: bool,
) -> None:
    """Compare tokenizers in the form that the artifact holds."""
    scratch = writer.subfolder(_SCRATCH)
    try:
        draft = write_tokenizer(
            imported.folder,
            imported.tokenizer_files,
            imported.config,
            scratch,
            allow_remote_code=allow_remote_code,
        )
        check_same_tokenizer(
            None if target is None else writer.folder / target.files[0],
            None if draft is None else scratch / draft.files[0],
            "--draft",
        )
    finally:
        shutil.rmtree(scratch)
