"""Measures a transcriber beside the one of its source."""

from __future__ import annotations

import dataclasses
import statistics
import time
from collections.abc import Mapping, Sequence

import numpy as np

from optc.artifact.tasks.task import SPEED
from optc.artifact.tasks.transcription import TRANSCRIPTION
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
    }
    if _SPEEDUP in bounds:
        values[_SPEEDUP] = _speedup(found, baseline, sounds[0])
    return tuple(_judged(one, values.get(one), bounds, engine) for one in TRANSCRIPTION.gates)


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


def _speedup(found: Transcriber, baseline: Transcriber, sound: Sound) -> float:
    """Median time of the baseline over that of the engine, which take turns."""
    seconds: dict[int, list[float]] = {0: [], 1: []}
    for _ in range(_TURNS):
        for index, one in enumerate((found, baseline)):
            begun = time.perf_counter()
            one.transcribe(sound)
            seconds[index].append(time.perf_counter() - begun)
    return statistics.median(seconds[1]) / statistics.median(seconds[0])


def _judged(
    name: str, value: float | None, bounds: Mapping[str, float | None], engine: str
) -> GateResult:
    reason = "no sound has words" if name in bounds else ""
    return dataclasses.replace(judge(name, value, bounds.get(name), reason), engine=engine)
