"""Calls of artifacts that do not generate text token by token, by their faces: of files of the
user, or of what ships."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from itertools import cycle, islice
from pathlib import Path
from typing import Any

import numpy as np

from optc.artifact.artifact import read_manifest
from optc.artifact.tasks.classification import CLASSIFICATION_NAME
from optc.artifact.tasks.embedding import EMBEDDING_NAME
from optc.artifact.tasks.image_generation import IMAGE_GENERATION_NAME
from optc.artifact.tasks.reranking import RERANKING_NAME
from optc.artifact.tasks.tensors import TENSORS_NAME
from optc.artifact.tasks.text_generation import TEXT_GENERATION
from optc.artifact.tasks.text_to_text import TEXT_TO_TEXT_NAME
from optc.artifact.tasks.token_classification import TOKEN_CLASSIFICATION_NAME
from optc.artifact.tasks.transcription import TRANSCRIPTION_NAME
from optc.errors import InputError
from optc.proof.bench.calls import Calls
from optc.runtime.load import load
from optc.runtime.tensors.classifier import Classifier
from optc.runtime.tensors.engine import TensorEngine

#: Tokens that are written for a text, and steps of an image.
TOKENS, STEPS = 48, 8
#: Side of images of noise, in pixels.
_SIDE = 256


def generates(artifact: Path) -> bool:
    """True for a generator of text, whose requests run in steps."""
    return read_manifest(artifact).task.face == TEXT_GENERATION.face


@contextmanager
def open_calls(
    artifact: Path, inputs: Sequence[Path], engine: str | None, threads: int | None
) -> Iterator[tuple[Calls, Mapping[str, Any]]]:
    """The calls of a loaded artifact, and which engine was chosen.

    Args:
        artifact: Its folder.
        inputs: The user's files, as of ``optc compile --inputs``; none are texts and sounds that
            ship, or noise.
        engine: Name of the engine.
        threads: It may use.

    Raises:
        InputError: A file is none such as the model takes.
    """
    face = read_manifest(artifact).task.face
    with load(artifact, engine=engine, threads=threads) as loaded:
        asked: Any = (loaded, inputs)
        calls = _tensors(artifact, *asked) if face == TENSORS_NAME else _FACES[face](*asked)
        info: Any = loaded.info
        yield calls, dict(info)


def _tensors(artifact: Path, loaded: TensorEngine, inputs: Sequence[Path]) -> Calls:
    from optc.compiling.tensors.calibration import rows_dim
    from optc.compiling.tensors.samples import read_samples
    from optc.compiling.tensors.trying import BuiltTensors, random_samples
    from optc.runtime.executable.tensors_interface import TensorsInterface

    interface: TensorsInterface = loaded.interface
    samples = read_samples(inputs, interface)
    samples = samples or random_samples(BuiltTensors.of(artifact, loaded.info["name"]))
    dim = rows_dim(interface)
    if dim is None:

        def call(count: int) -> Mapping[str, float]:
            loaded.run(samples[0])
            return {}

        return Calls("calls", call, most=1)

    def rows(count: int) -> Mapping[str, float]:
        places = list(islice(cycle(range(len(next(iter(samples[0].values()))))), count))
        loaded.run({name: array[places] for name, array in samples[0].items()})
        return {}

    return Calls("rows", rows, interface.symbols[dim].least, interface.symbols[dim].most)


def read_texts(inputs: Sequence[Path]) -> Sequence[str]:
    """The lines of files, or sentences that ship.

    Raises:
        InputError: No file has a line, or one cannot be read.
    """
    from optc.compiling.tensors.sentences import sentences
    from optc.system.options.user_text import read_user_text

    lines = [line.strip() for path in inputs for line in read_user_text(path).splitlines()]
    found = [line for line in lines if line]
    if inputs and not found:
        raise InputError("no file has a line", where="--inputs", hint="one text a line")
    return found or sentences()


def _by_texts(name: str, loaded: Any, inputs: Sequence[Path]) -> Calls:
    """Calls of a method that takes texts."""
    texts, call = read_texts(inputs), getattr(loaded, name)

    def run(count: int) -> Mapping[str, float]:
        call(list(islice(cycle(texts), count)))
        return {}

    return Calls("texts", run)


def _reranked(loaded: Any, inputs: Sequence[Path]) -> Calls:
    query, *texts = read_texts(inputs)

    def run(count: int) -> Mapping[str, float]:
        loaded.rank(query, list(islice(cycle(texts or [query]), count)))
        return {}

    return Calls("texts", run)


def _classified(loaded: Any, inputs: Sequence[Path]) -> Calls:
    if not isinstance(loaded, Classifier):
        return _by_texts("classify", loaded, inputs)
    from optc.runtime.tensors.images import image_files

    source = np.random.default_rng(0)
    noise = [source.integers(0, 256, (_SIDE, _SIDE, 3), np.uint8)]
    images: Sequence[Any] = [
        one for path in inputs for one in (image_files(path) if path.is_dir() else [path])
    ]

    def run(count: int) -> Mapping[str, float]:
        loaded.classify(list(islice(cycle(images or noise), count)), batch_size=count)
        return {}

    return Calls("images", run)


def _transcribed(loaded: Any, inputs: Sequence[Path]) -> Calls:
    from optc.compiling.speech.sounds import read_sounds, shipped_sounds

    sounds = read_sounds(inputs) or shipped_sounds()

    def run(count: int) -> Mapping[str, float]:
        asked = list(islice(cycle(sounds), count))
        found = loaded.transcribe_all(asked)
        return {
            "audio_seconds": sum(one.seconds for one in asked),
            "tokens": float(sum(len(one.tokens) for one in found)),
        }

    return Calls("sounds", run)


def _generated(loaded: Any, inputs: Sequence[Path]) -> Calls:
    texts = read_texts(inputs)

    def run(count: int) -> Mapping[str, float]:
        asked = list(islice(cycle(texts), count))
        found = loaded.generate(asked, max_tokens=TOKENS, truncate=True)
        return {"tokens": float(sum(len(one.tokens) for one in found))}

    return Calls("texts", run)


def _drawn(loaded: Any, inputs: Sequence[Path]) -> Calls:
    texts = read_texts(inputs)

    def run(count: int) -> Mapping[str, float]:
        prompts = list(islice(cycle(texts), count)) if loaded.takes_prompts else count
        loaded.generate(prompts, steps=STEPS)
        return {}

    return Calls("images", run)


_FACES: Mapping[str, Callable[[Any, Sequence[Path]], Calls]] = {
    EMBEDDING_NAME: partial(_by_texts, "embed"),
    TOKEN_CLASSIFICATION_NAME: partial(_by_texts, "classify"),
    CLASSIFICATION_NAME: _classified,
    RERANKING_NAME: _reranked,
    TRANSCRIPTION_NAME: _transcribed,
    TEXT_TO_TEXT_NAME: _generated,
    IMAGE_GENERATION_NAME: _drawn,
}
