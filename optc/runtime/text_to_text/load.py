"""`load_text_to_text`: from an artifact folder to a `TextToTextGenerator`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from optc.artifact.artifact import Artifact
from optc.artifact.tasks.task import ENCODER
from optc.artifact.tasks.text_to_text import TEXT_TO_TEXT_NAME
from optc.errors import ArtifactError, UnsupportedError
from optc.runtime.encoded.open import as_tensors, open_part
from optc.runtime.loader import artifact_tokenizer
from optc.runtime.settings import ServeSettings
from optc.runtime.tensors.texts import read_tokenizer
from optc.runtime.text_to_text.conventions import CONVENTIONS_FILE, TextConventions
from optc.runtime.text_to_text.generator import TextToTextGenerator
from optc.runtime.text_to_text.step_writer import writer_of
from optc.system.foreign.file import read_file
from optc.system.foreign.typed_json import typed
from optc.system.hardware.target import usable_threads
from optc.system.options.option import with_changes
from optc.system.safe_json import JSONError, parse_json


def load_text_to_text(
    path: str | Path, settings: ServeSettings | None = None, **changes: Any
) -> TextToTextGenerator:
    """Load an artifact that turns texts into texts.

    Args:
        path: The artifact's folder.
        settings, **changes: Of `ServeSettings` these count: ``engine``, ``threads``, ``verify``;
            and of a decoder that runs in steps all that do not concern models that draft.

    Raises:
        ArtifactError: Not an artifact, or damaged; names the file.
        UnavailableError: No engine can be loaded here; gives the reason against each.
        InputError: There is no such ``engine``, or ``speculate`` names what needs another one.
        UnsupportedError: The artifact is for another task.
    """
    settings = with_changes(settings or ServeSettings(), changes)
    artifact = Artifact.open(path, "size")
    if artifact.manifest.task.face != TEXT_TO_TEXT_NAME:
        raise UnsupportedError(
            f"is for the task {artifact.manifest.task.name!r}, and turns no text into another",
            where=str(path),
            hint="load it with optc.load",
        )
    with artifact.contents_checked(settings.verify):
        decoder = artifact.choose(name=settings.engine)
        encoder = artifact.choose(ENCODER, beside=decoder.entry)
        conventions = _conventions(artifact)
    tokenizer_file = artifact.tokenizer_file()
    if tokenizer_file is None:
        raise ArtifactError("it has no tokenizer", where=str(path), hint="compile it again")
    tokenizer = read_tokenizer(tokenizer_file)
    threads = settings.threads or usable_threads()
    folders = [artifact.engine_folder(one.entry) for one in (encoder, decoder)]
    reader = open_part(folders[0], encoder.entry, threads, conventions.ends)
    writer = open_part(
        folders[1],
        decoder.entry,
        threads,
        conventions.ends,
        settings=settings,
        tokenizer=artifact_tokenizer(artifact),
        digest=artifact.digest,
    )
    info = {
        "name": decoder.entry.name,
        "backend": decoder.entry.backend,
        "target": decoder.entry.target.name,
        "encoder": encoder.entry.name,
        "rejected": {other.name: other.reason for other in decoder.rejected},
    }
    return TextToTextGenerator(as_tensors(reader), writer_of(writer), conventions, tokenizer, info)


def _conventions(artifact: Artifact) -> TextConventions:
    file = artifact.files.path(CONVENTIONS_FILE, "the conventions of its tokens")
    try:
        return typed(parse_json(read_file(file)), TextConventions, str(file))
    except (OSError, JSONError) as error:
        raise ArtifactError(f"cannot be read: {error}", where=str(file)) from error
