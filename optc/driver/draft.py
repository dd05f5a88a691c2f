"""The draft model of a compile: a second engine in the same artifact (``--draft MODEL``)."""

from __future__ import annotations

import shutil
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from optc import importer
from optc.artifact import ArtifactWriter, EngineEntry, Source, TokenizerEntry
from optc.backend import BuildOptions
from optc.driver.limits import check_disk
from optc.driver.lowering import lower
from optc.driver.options import CompileOptions
from optc.driver.tokenizer import write_tokenizer
from optc.errors import InputError
from optc.importer import ImportedModel
from optc.runtime.executable import EngineSpec
from optc.runtime.speculative.draft_artifact import check_same_tokenizer

FOLDER = "engines/draft"
_SCRATCH = "draft-tokenizer"


@dataclass(frozen=True)
class Draft:
    """A built draft model.

    Attributes:
        engine: Its entry in the manifest.
        report: Its passes and its build, for the report.
    """

    engine: EngineEntry
    report: dict[str, Any]


def build_draft(
    options: CompileOptions,
    source: Path,
    writer: ArtifactWriter,
    tokenizer: TokenizerEntry | None,
    target: EngineSpec,
) -> Draft:
    """Compile the model in ``source`` with the recipe of the target, beside it.

    It is not gated: the target verifies every token that it drafts.

    Args:
        options: Of the compile.
        source: Folder of the draft model.
        writer: Of the artifact.
        tokenizer: The target's.
        target: The target's limits.

    Raises:
        InputError: The folder is no model, or its tokenizer or vocabulary is not the target's.
        UnsupportedError: Something in the draft is not recognized or cannot be lowered.
    """
    own = replace(options, source=source, recipe=options.draft_recipe, dump_dir=None)
    imported = importer.import_model(own.source, allow_remote_code=own.allow_remote_code)
    _check_tokenizer(imported, writer, tokenizer)
    lowered = lower(imported.model, own)
    check_disk(lowered.model, writer)
    limits = BuildOptions(
        max_context=min(imported.max_context, target.max_context),
        max_ram_bytes=own.max_ram_bytes,
        tune=own.tune,
        schedules=own.schedules,
    )
    build = own.backend.build(lowered.model, own.target, writer.subfolder(FOLDER), limits)
    if build.spec.vocab_size != target.vocab_size:
        raise InputError(
            f"the draft model knows {build.spec.vocab_size} tokens, the target {target.vocab_size}",
            where="--draft",
            hint="a draft must have the target's vocabulary",
        )
    engine = EngineEntry(
        name="draft",
        role="draft",
        backend=own.backend.name,
        target=own.target,
        requires=build.requires,
        spec=build.spec,
        data=build.backend_data,
        folder=FOLDER,
        files=build.files,
        source=Source(imported.name, imported.source_digest, imported.family, imported.config),
    )
    passes = [run.to_json() for run in lowered.runs]
    return Draft(engine, {"passes": passes, "build": build.report})


def _check_tokenizer(
    imported: ImportedModel, writer: ArtifactWriter, target: TokenizerEntry | None
) -> None:
    """Compare tokenizers in the form that the artifact holds."""
    scratch = writer.subfolder(_SCRATCH)
    try:
        draft = write_tokenizer(imported.folder, imported.tokenizer_files, imported.config, scratch)
        check_same_tokenizer(
            None if target is None else writer.folder / target.files[0],
            None if draft is None else scratch / draft.files[0],
            "--draft",
        )
    finally:
        shutil.rmtree(scratch)
