"""The source model of an artifact, as gates and ``optc eval`` compare with it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from optc import registry
from optc.artifact import Manifest
from optc.errors import InputError
from optc.pipeline.pipeline import Pipeline
from optc.progress import Progress

if TYPE_CHECKING:
    from optc.importer import ImportedModel


def import_reference(folder: Path, progress: Progress) -> ImportedModel:
    """The model in ``folder``, in dense form.

    Raises:
        InputError: No model, or one that cannot be read.
        UnsupportedError: Something in it is not recognized.
    """
    from optc.importer import import_model

    progress("import", 0, 0)
    imported = import_model(folder)
    Pipeline.parse("canonicalize", registry).run(imported.model)
    return imported


def check_source(imported: ImportedModel, manifest: Manifest, folder: Path) -> None:
    """Check that an artifact was compiled from this model.

    Raises:
        InputError: Its config or weights differ from what was compiled.
    """
    if imported.source_digest != manifest.source.digest:
        raise InputError(
            f"is not the model that {manifest.name} was compiled from: config or weights differ",
            where=str(folder),
            hint=f"its digest is {manifest.source.digest}",
        )
