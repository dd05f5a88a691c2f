"""The source model of an artifact, as gates and ``optc eval`` compare with it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from optc.artifact.artifact import Artifact
from optc.artifact.manifest import EngineEntry, Manifest, short_digest
from optc.compiling.lowering.lowering import dense_pipeline
from optc.compiling.resolving.tokenizer import FOLDER
from optc.errors import InputError
from optc.importer.config import read_config
from optc.importer.hub import local_model
from optc.importer.model_folder import model_folder
from optc.importer.source_digest import digest_source
from optc.importer.text_model.stated import decoder_part
from optc.ir.pipeline import registry as pass_registry
from optc.ir.pipeline.phase import Effect
from optc.ir.vocabulary import KEPT_IDS
from optc.system.progress import Progress

if TYPE_CHECKING:
    from optc.importer.imported import ImportedModel

#: The list of the tokens that stay, in an artifact whose vocabulary was trimmed.
KEPT_FILE = f"{FOLDER}/{KEPT_IDS}"


def import_reference(
    folder: Path,
    engine: EngineEntry,
    progress: Progress,
    *,
    allow_remote_code: bool = False,
    kept: Path | None = None,
) -> ImportedModel:
    """The model in ``folder``, in dense form, if an engine can be compared with it.

    Args:
        folder: The model's folder.
        engine: What it will be compared with.
        progress: Told what goes on.
        allow_remote_code: Whether Python code of the folder may run.
        kept: Folder with the list of the tokens that the artifact has of the model's
            (`trimmed_vocabulary`); None are all. The reference then has no others either.

    Raises:
        InputError: No model, one that cannot be read, or one of another vocabulary than the
            engine's; the latter is found by config.json, before the model is imported.
        UnsupportedError: Something in it is not recognized.
    """
    folder = model_folder(local_model(folder, code=allow_remote_code))
    config = read_config(folder, allow_remote_code=allow_remote_code)
    if kept is None:
        _check_vocabulary(_stated_vocabulary(config), engine, folder)
    from optc.importer.import_model import import_model
    from optc.ir.graph import width

    progress("import", 0, 0)
    imported = import_model(folder, allow_remote_code=allow_remote_code)
    if kept is None:
        _check_vocabulary(width(imported.model.graph.outputs[0]), engine, folder)
    trim = pass_registry.having(Effect.REMOVES_TOKENS)
    trims = [] if kept is None else [trim.from_options({"folder": str(kept)})]
    dense_pipeline(*trims).run(imported.model)
    _check_vocabulary(width(imported.model.graph.outputs[0]), engine, folder)
    return imported


def trimmed_vocabulary(artifact: Artifact) -> Path | None:
    """Folder with the list of an artifact's tokens; None where it has all of its source's."""
    tokenizer = artifact.manifest.tokenizer
    if tokenizer is None or KEPT_FILE not in tokenizer.files:
        return None
    return artifact.files.path(KEPT_FILE, "the tokenizer").parent


def check_source(digest: str, manifest: Manifest, folder: Path) -> None:
    """Check that an artifact was compiled from the model of this digest.

    Raises:
        InputError: Its config or weights differ from what was compiled.
    """
    if digest != manifest.source.digest:
        raise InputError(
            f"is not the model that {manifest.name} was compiled from: config or weights differ, "
            f"its digest is {short_digest(digest)}…, "
            f"not {short_digest(manifest.source.digest)}…",
            where=str(folder),
            hint=f"give the folder of {manifest.source.name}",
        )


def check_source_folder(folder: Path, manifest: Manifest) -> None:
    """As `check_source`, of a folder that is not imported.

    Raises:
        InputError: As there, or the folder holds no model.
    """
    folder = model_folder(local_model(folder))
    read_config(folder, allow_remote_code=True)  # nothing of it is run
    check_source(digest_source(folder), manifest, folder)


def other_source(imported: ImportedModel, engine: EngineEntry, manifest: Manifest) -> str | None:
    """A warning where an engine was compiled from another model than this; None where it was not.

    A model is compared with another one on purpose as well, so that this is no error.
    """
    source = engine.source or manifest.source
    if imported.source_digest == source.digest:
        return None
    return (
        f"{imported.name} (digest {short_digest(imported.source_digest)}…) is not the model "
        f"that the engine {engine.name} was compiled from ({source.name}, digest "
        f"{short_digest(source.digest)}…): the figures say how far two models are apart"
    )


def _check_vocabulary(known: int | None, engine: EngineEntry, folder: Path) -> None:
    if known is not None and known != engine.spec.vocab_size:
        raise InputError(
            f"the reference knows {known} tokens, the engine {engine.name} "
            f"{engine.spec.vocab_size}: their predictions cannot be compared",
            where=str(folder),
            hint="give the model that the artifact was compiled from",
        )


def _stated_vocabulary(config: dict[str, Any]) -> int | None:
    """Of the text model, which multimodal configs hold apart; None where it is not stated."""
    stated = decoder_part(config).get("vocab_size")
    return stated if isinstance(stated, int) else None
