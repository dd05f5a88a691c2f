"""Measures a transcriber beside the one of its source."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence

import numpy as np

from optc.artifact.tasks.task import SPEED
from optc.artifact.tasks.transcription import TRANSCRIPTION
from optc.proof.gates.in_turns import speedup
from optc.proof.gates.measure import GateResult, judge
from optc.proof.gates.speech.words import error_rate
from optc.runtime.audio.wav import Sound
from optc.runtime.speech.transcriber import Transcriber
from optc.runtime.speech.transcript import Transcript

#: Speed is the median over so many turns.
_TURNS = 3
_SPEEDUP = TRANSCRIPTION.of(SPEED)[0]


def measure_transcriber(
    found: Transcriber,
    reference: Transcriber,
    baseline: Transcriber,
    sounds: Sequence[Sound],
    bounds: Mapping[str, float | None],
    engine: str,
) -> tuple[GateResult, ...]:
    """Verdicts of the task's measures, in order.

    Args:
        found: With the engine.
        reference: With the source's own outputs.
        baseline: With the float32 graphs in ONNX Runtime, whose speed is 1.
        sounds: To write down.
        bounds: Of the recipe.
        engine: Its name.
    """
    wanted = reference.transcribe_all(sounds)
    ours = found.transcribe_all(sounds)
    values: dict[str, float | None] = {
        "token_agreement": _agreement(found, sounds, wanted),
        "transcript_agreement": float(
            np.mean([a.tokens == b.tokens for a, b in zip(ours, wanted, strict=True)])
        ),
        "word_error_rate": error_rate(
            [(a.text, b.text) for a, b in zip(ours, wanted, strict=True)]
        ),
        "word_error_rate_added": _added(ours, wanted, sounds),
    }
    if _SPEEDUP in bounds:
        values[_SPEEDUP] = speedup(
            lambda: found.transcribe(sounds[0]), lambda: baseline.transcribe(sounds[0]), _TURNS
        )
    return tuple(_judged(one, values.get(one), bounds, engine) for one in TRANSCRIPTION.gates)


def _added(
    ours: Sequence[Transcript], wanted: Sequence[Transcript], sounds: Sequence[Sound]
) -> float | None:
    """The engine's word error rate less the reference's, whose transcripts stand for words that
    nobody knows."""
    said = [sound.text or one.text for sound, one in zip(sounds, wanted, strict=True)]
    rates = (
        error_rate([(one.text, text) for one, text in zip(found, said, strict=True)])
        for found in (ours, wanted)
    )
    known = [rate for rate in rates if rate is not None]  # both or none: of the same words
    return known[0] - known[1] if known else None


def _agreement(
    found: Transcriber, sounds: Sequence[Sound], wanted: Sequence[Transcript]
) -> float | None:
    """The share of the reference's tokens that the engine would have said, too, of sounds that are
    one window long: the ends count."""
    agreed = count = 0
    for sound, transcript in zip(sounds, wanted, strict=True):
        if transcript.segments or not transcript.tokens:
            continue
        likeliest = found.likeliest(sound, transcript)
        expected = [*transcript.tokens, found.conventions.end]
        if len(expected) + len(found.prompt(transcript)) > found.conventions.most_tokens:
            expected.pop()  # it was cut off
        agreed += sum(a == b for a, b in zip(likeliest, expected, strict=False))
        count += len(expected)
    return agreed / count if count else None


def _judged(
    name: str, value: float | None, bounds: Mapping[str, float | None], engine: str
) -> GateResult:
    reason = "no sound has words" if name in bounds else ""
    return dataclasses.replace(judge(name, value, bounds.get(name), reason), engine=engine)
