"""Outputs of two artifacts for the same inputs, in the words of their task's measures."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from optc import registry
from optc.artifact.artifact import Artifact
from optc.artifact.tasks.image_generation import IMAGE_GENERATION_NAME
from optc.artifact.tasks.task import Task
from optc.artifact.tasks.text_generation import TEXT_GENERATION
from optc.artifact.tasks.text_to_text import TEXT_TO_TEXT_NAME
from optc.artifact.tasks.transcription import TRANSCRIPTION_NAME
from optc.cli.inputs.calls import STEPS, TOKENS, read_texts
from optc.errors import InputError
from optc.runtime.load import load
from optc.runtime.tensors.classifier import Classifier

Array = npt.NDArray[Any]
Values = Mapping[str, float | None]
#: Sounds, texts and images that are compared where the user gives none.
_SOUNDS, _TEXTS, _IMAGES = 8, 16, 2


def compare_outputs(
    a: Path, b: Path, inputs: Sequence[Path], engine: str | None, threads: int | None
) -> dict[str, float | None]:
    """The measures of the task, with ``a`` as the reference.

    Args:
        a, b: Folders of artifacts.
        inputs: The user's files, as of ``optc compile --inputs``; none are texts and sounds that
            ship, or noise.
        engine: Name of the engine of both.
        threads: They may use.

    Raises:
        InputError: They are for different tasks or inputs, generate text, or a file is none such as
            they take.
    """
    first, second = (Artifact.open(path, "size").manifest.task for path in (a, b))
    if first.face != second.face:
        raise InputError(
            f"{a} is for {first.name}, {b} for {second.name}",
            where="--outputs",
            hint="compare artifacts for one task",
        )
    if first.face == TEXT_GENERATION.face:
        raise InputError(
            "generators of text are compared by their gates",
            where="--outputs",
            hint="optc eval measures the distance from the model",
        )
    with (
        load(a, engine=engine, threads=threads) as ours,
        load(b, engine=engine, threads=threads) as theirs,
    ):
        return dict(_compared(first, a, ours, theirs, inputs))


def _compared(task: Task, path: Path, a: Any, b: Any, inputs: Sequence[Path]) -> Values:
    if task.face == TRANSCRIPTION_NAME:
        return _transcripts(a, b, inputs)
    if task.face == TEXT_TO_TEXT_NAME:
        return _generated(a, b, inputs)
    if task.face == IMAGE_GENERATION_NAME:
        return _pictures(a, b, inputs)
    return _tensors(task, path, a, b, inputs)


def _tensors(task: Task, path: Path, a: Any, b: Any, inputs: Sequence[Path]) -> Values:
    from optc.proof.gates.tensors.measure import measure_tensors
    from optc.proof.gates.tensors.padding import unpadded

    for what in ("inputs", "outputs"):
        both = [[(one.name, one.dtype) for one in getattr(loaded, what)] for loaded in (a, b)]
        if [kind for _, kind in both[0]] != [kind for _, kind in both[1]]:
            raise InputError(
                f"{what} of A are {_shown(both[0])}, of B {_shown(both[1])}",
                where="--outputs",
                hint="compare artifacts of one model",
            )
    samples = _samples(task, path, a, inputs)
    mask = next((one.name for one in a.inputs if one.name == "attention_mask"), "")

    def by_position(sample: Mapping[str, Array]) -> Mapping[str, Array]:
        """B's outputs under A's names: sources of other kinds name tensors otherwise."""
        given = {b.inputs[i].name: sample[one.name] for i, one in enumerate(a.inputs)}
        found = b.run(given)
        return {one.name: found[b.outputs[i].name] for i, one in enumerate(a.outputs)}

    ours, theirs = (unpadded(run, mask) for run in (a.run, by_position))
    known = registry.tasks().get(task.name, task)
    gates = measure_tensors(theirs, ours, ours, samples, {}, "", known)
    return {gate.name: gate.value for gate in gates if gate.value is not None}


def _shown(inputs: Sequence[tuple[str, str]]) -> str:
    return ", ".join(f"{name} {dtype}" for name, dtype in inputs)


def _samples(
    task: Task, path: Path, loaded: Any, inputs: Sequence[Path]
) -> Sequence[Mapping[str, Array]]:
    from optc.compiling.tensors.samples import read_samples
    from optc.compiling.tensors.sentences import sentence_samples, text_samples, tokenizer_of
    from optc.compiling.tensors.trying import BuiltTensors, random_samples

    content = tokenizer_of(Artifact.open(path, "size"))
    if content is not None:
        if inputs:
            return text_samples(content, loaded.interface, read_texts(inputs), task)
        return sentence_samples(content, loaded.interface, task)
    images = loaded.images if isinstance(loaded, Classifier) else None
    given = read_samples(inputs, loaded.interface, images)
    return given or random_samples(BuiltTensors.of(path, loaded.info["name"]))


def _transcripts(a: Any, b: Any, inputs: Sequence[Path]) -> Values:
    from optc.compiling.speech.sounds import read_sounds, shipped_sounds
    from optc.proof.gates.speech.measure import measure_transcriber

    sounds = read_sounds(inputs) or shipped_sounds()[:_SOUNDS]
    gates = measure_transcriber(b, a, a, sounds, {}, "")
    return {gate.name: gate.value for gate in gates if gate.value is not None}


def _generated(a: Any, b: Any, inputs: Sequence[Path]) -> Values:
    from optc.proof.gates.text_to_text.measure import measure_text_to_text

    texts = read_texts(inputs)
    texts = texts if inputs else texts[:_TEXTS]
    most = min(TOKENS, a.conventions.most_tokens)
    gates = measure_text_to_text(b, a, a, texts, {}, "", {"max_tokens": most, "truncate": True})
    return {gate.name: gate.value for gate in gates if gate.value is not None}


def _pictures(a: Any, b: Any, inputs: Sequence[Path]) -> Values:
    from optc.proof.gates.pictures.similarity import psnr, ssim

    prompts = list(read_texts(inputs))[:_IMAGES] if a.takes_prompts else _IMAGES
    wanted, found = (one.generate(prompts, steps=STEPS) for one in (a, b))
    pairs = list(zip(found, wanted, strict=True))
    return {
        "psnr_db": float(np.mean([psnr(*pair) for pair in pairs])),
        "ssim": float(np.mean([ssim(*pair) for pair in pairs])),
    }
