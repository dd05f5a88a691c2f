"""`load`: an artifact as its task shows it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, cast

from optc.artifact.artifact import read_manifest
from optc.artifact.tasks.classification import CLASSIFICATION_NAME
from optc.artifact.tasks.embedding import EMBEDDING_NAME
from optc.artifact.tasks.image_generation import IMAGE_GENERATION_NAME
from optc.artifact.tasks.reranking import RERANKING_NAME
from optc.artifact.tasks.tensors import TENSORS_NAME
from optc.artifact.tasks.text_to_text import TEXT_TO_TEXT_NAME
from optc.artifact.tasks.token_classification import TOKEN_CLASSIFICATION_NAME
from optc.artifact.tasks.transcription import TRANSCRIPTION_NAME
from optc.runtime import loader
from optc.runtime.settings import ServeSettings

#: Faces of `optc.TensorEngine` and its kinds.
_OF_TENSORS = (
    *(TENSORS_NAME, EMBEDDING_NAME, CLASSIFICATION_NAME),
    *(TOKEN_CLASSIFICATION_NAME, RERANKING_NAME),
)

if TYPE_CHECKING:
    from typing import Unpack

    from optc.runtime.engine import Engine
    from optc.runtime.keywords import ServeChanges


def load(
    path: str | Path, settings: ServeSettings | None = None, **changes: Unpack[ServeChanges]
) -> Engine:
    """Load an artifact.

    A decoder becomes an `optc.Engine`, which generates text. A model of named tensors becomes an
    `optc.TensorEngine`, one of sentence-transformers an `optc.Embedder`, a classifier of images an
    `optc.Classifier`, of texts an `optc.TextClassifier`, of tokens an `optc.TokenClassifier`, and a
    cross-encoder an `optc.Reranker`: for type checkers, `optc.load_tensors` gives the same. A model
    of speech becomes an `optc.Transcriber`, as `optc.load_transcriber` gives it, and one that makes
    images an `optc.ImageGenerator`, as `optc.load_image_generator` gives it. One that turns texts
    into texts becomes an `optc.TextToTextGenerator`, as `optc.load_text_to_text` gives it.

    Args:
        path: The artifact's folder.
        settings: How it serves; None are the defaults.
        **changes: Fields of `ServeSettings` that differ from ``settings``.

    Raises:
        ArtifactError: Not an artifact, or damaged; names the file.
        UnavailableError: No engine can be loaded here; gives the reason against each.
        InputError: There is no such ``engine``, a setting is not usable, or a draft model is
            missing or does not fit.
        TypeError: There is no setting of a name in ``changes``.
    """
    face = read_manifest(Path(path)).task.face
    if face == TRANSCRIPTION_NAME:
        from optc.runtime.speech.load import load_transcriber

        return cast("Engine", load_transcriber(path, settings, **changes))
    if face == IMAGE_GENERATION_NAME:
        from optc.runtime.diffusion.load import load_image_generator

        return cast("Engine", load_image_generator(path, settings, **changes))
    if face == TEXT_TO_TEXT_NAME:
        from optc.runtime.text_to_text.load import load_text_to_text

        return cast("Engine", load_text_to_text(path, settings, **changes))
    if face in _OF_TENSORS:
        from optc.runtime.tensors.load import load_tensors

        return cast("Engine", load_tensors(path, settings, **changes))
    return loader.load(path, settings, **changes)
