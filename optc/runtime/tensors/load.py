"""`load_tensors`: from an artifact folder to an engine of named tensors."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from optc.artifact.artifact import Artifact
from optc.artifact.tasks.classification import CLASSIFICATION_NAME
from optc.artifact.tasks.embedding import EMBEDDING_NAME
from optc.artifact.tasks.reranking import RERANKING_NAME
from optc.artifact.tasks.text_to_text import TEXT_TO_TEXT_NAME
from optc.artifact.tasks.token_classification import TOKEN_CLASSIFICATION_NAME
from optc.artifact.tasks.transcription import TRANSCRIPTION_NAME
from optc.errors import UnsupportedError
from optc.runtime.settings import ServeSettings
from optc.runtime.tensors.classifier import IMAGES_FILE, Classifier, read_images
from optc.runtime.tensors.embedder import Embedder
from optc.runtime.tensors.engine import TensorEngine, interface_of, open_folder
from optc.runtime.tensors.text_classifiers import (
    Reranker,
    ScoredTexts,
    TextClassifier,
    TokenClassifier,
)
from optc.runtime.tensors.texts import TEXTS_FILE, read_scores, read_tokenizer
from optc.system.hardware.target import usable_threads
from optc.system.options.option import with_changes

_SCORED: dict[str, type[ScoredTexts]] = {
    CLASSIFICATION_NAME: TextClassifier,
    TOKEN_CLASSIFICATION_NAME: TokenClassifier,
    RERANKING_NAME: Reranker,
}


def load_tensors(
    path: str | Path, settings: ServeSettings | None = None, **changes: Any
) -> TensorEngine:
    """Load an artifact whose model takes and gives named tensors.

    Args:
        path: The artifact's folder.
        settings, **changes: Of `ServeSettings` these count: ``engine``, ``threads``, ``verify``.

    Raises:
        ArtifactError: Not an artifact, or damaged; names the file.
        UnavailableError: No engine can be loaded here; gives the reason against each.
        InputError: There is no such ``engine``.
        UnsupportedError: The artifact's model is a decoder.
    """
    settings = with_changes(settings or ServeSettings(), changes)
    artifact = Artifact.open(path, "size")
    if artifact.manifest.task.face == TRANSCRIPTION_NAME:
        raise UnsupportedError(
            "writes down speech, by two engines together",
            where=str(path),
            hint="load it with optc.load_transcriber",
        )
    if artifact.manifest.task.face == TEXT_TO_TEXT_NAME:
        raise UnsupportedError(
            "turns texts into texts, by two engines together",
            where=str(path),
            hint="load it with optc.load_text_to_text",
        )
    with artifact.contents_checked(settings.verify):
        choice = artifact.choose(name=settings.engine)
    folder = artifact.path / choice.entry.folder
    executable = open_folder(folder, choice.entry, settings.threads or usable_threads())
    info = {
        "name": choice.entry.name,
        "backend": choice.entry.backend,
        "target": choice.entry.target.name,
        "rejected": {other.name: other.reason for other in choice.rejected},
    }
    interface = interface_of(choice.entry)
    face, tokenizer = artifact.manifest.task.face, artifact.manifest.tokenizer
    if tokenizer is None:
        if face != CLASSIFICATION_NAME:
            return TensorEngine(executable, interface, info)
        images = read_images(artifact.path / IMAGES_FILE)
        return Classifier(executable, interface, info, images)
    reader = read_tokenizer(artifact.path / tokenizer.files[0])
    stated = artifact.path / TEXTS_FILE
    if face == EMBEDDING_NAME:
        prompt = read_scores(stated).prompt if stated.is_file() else ""
        return Embedder(executable, interface, info, reader, prompt)
    scores = read_scores(stated)
    return _SCORED[face](executable, interface, info, reader, scores)
