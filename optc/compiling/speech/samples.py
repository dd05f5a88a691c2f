"""Samples for passes over both graphs of a model of speech: calls that sounds lead to."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from optc.compiling.speech.judge import source_transcriber
from optc.errors import InputError
from optc.proof.reference.tensor_samples import give_samples
from optc.runtime.audio.wav import Sound

if TYPE_CHECKING:
    from optc.importer.tensors.speech import ImportedSpeech


def give_speech_samples(imported: ImportedSpeech, sounds: Sequence[Sound]) -> tuple[str, ...]:
    """Give each graph its samples: the encoder the sounds, the decoder the transcripts that the
    source writes, each as one step. Sounds beyond a window are left out. No warnings.

    Raises:
        InputError: No sound has words within a window.
    """
    source = source_transcriber(imported)
    encoder: list[dict[str, Any]] = []
    decoder: list[dict[str, Any]] = []
    for sound, transcript in zip(sounds, source.transcribe_all(sounds), strict=True):
        if transcript.segments or not transcript.tokens:
            continue
        inputs, step = source.calls(sound, transcript)
        encoder.append(dict(inputs))
        decoder.append(dict(step))
    if not encoder:
        raise InputError(
            "the model writes no words for any of the sounds that it is calibrated by",
            where="calibration",
            hint="--calibration FOLDER gives others, each within a window",
        )
    give_samples(imported.models.encoder.model, encoder)
    give_samples(imported.models.decoder.model, decoder)
    return ()
