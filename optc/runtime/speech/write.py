"""Writes transcripts of windows of sound: the loop over a decoder's steps."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from optc.runtime.audio.conventions import Conventions
from optc.runtime.speech.rules import forbid, log_softmax
from optc.runtime.speech.step import DecoderBatch, Run

Float32 = npt.NDArray[np.float32]
Int64 = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Writing:
    """Settings for writing transcripts.

    Attributes:
        timestamps: With times.
        temperature: 0 takes the likeliest token; above, tokens are drawn.
        seed: Of draws.
    """

    timestamps: bool = False
    temperature: float = 0.0
    seed: int = 0


@dataclass
class Written:
    """The transcript of a window.

    Attributes:
        tokens: Without the prompt and the end, times among them.
        logprob: Mean logarithm of the tokens' probabilities, the end's among them.
        no_speech: Probability that nobody speaks; 0 where the model does not say.
    """

    tokens: list[int]
    logprob: float
    no_speech: float


def write(
    decoder: Run,
    cross: Mapping[str, Float32],
    prompts: Sequence[Sequence[int]],
    conventions: Conventions,
    how: Writing,
) -> list[Written]:
    """Transcripts of windows that are decoded together.

    Args:
        decoder: Its steps.
        cross: Keys and values of the windows, by name.
        prompts: A prompt for each window, all of one length.
        conventions: Of the model.
        how: As asked for.
    """
    batch = DecoderBatch(decoder, cross)
    said: list[list[int]] = [[] for _ in prompts]
    sums = np.zeros(len(prompts))
    logits = batch.step(np.array(prompts, np.int64))
    silence = _no_speech(logits, prompts[0], conventions)
    rows = list(range(len(prompts)))  # the window of each row of the batch
    draws = [np.random.default_rng([how.seed, row]) for row in rows]
    open_rows = set(rows)
    room = conventions.most_tokens - len(prompts[0])
    next_tokens = np.zeros(len(prompts), np.int64)
    while True:
        for place, row in enumerate(rows):
            if row not in open_rows:
                continue
            own = logits[place, -1].copy()
            forbid(own, said[row], conventions, timestamps=how.timestamps)
            token, logprob = _chosen(own, how.temperature, draws[row])
            sums[row] += logprob
            next_tokens[row] = token
            if token == conventions.end:
                open_rows.discard(row)
                continue
            said[row].append(token)
            if len(said[row]) >= room:
                open_rows.discard(row)
        if not open_rows:
            break
        if len(open_rows) <= len(rows) // 2:
            kept = [place for place, row in enumerate(rows) if row in open_rows]
            batch.keep(np.array(kept, np.int64))
            rows = [rows[place] for place in kept]
        logits = batch.step(next_tokens[rows][:, None])
    return [
        Written(tokens, total / (len(tokens) + 1), chance)
        for tokens, total, chance in zip(said, sums.tolist(), silence, strict=True)
    ]


def detect_language(
    decoder: Run, cross: Mapping[str, Float32], conventions: Conventions
) -> list[int]:
    """The likeliest language's token of each window."""
    batch = DecoderBatch(decoder, cross)
    start = np.full((batch.requests, 1), conventions.start, np.int64)
    logits, tokens = batch.step(start)[:, -1], np.array(list(conventions.languages.values()))
    return [int(tokens[row[tokens].argmax()]) for row in logits]


def _no_speech(logits: Float32, prompt: Sequence[int], conventions: Conventions) -> list[float]:
    if conventions.no_speech is None:
        return [0.0] * len(logits)
    behind_start = logits[:, list(prompt).index(conventions.start)]
    return np.exp(log_softmax(behind_start)[:, conventions.no_speech]).tolist()


def _chosen(logits: Float32, temperature: float, draws: np.random.Generator) -> tuple[int, float]:
    """A token, and the logarithm of its probability."""
    chances = log_softmax(logits if not temperature else logits / temperature)
    if not temperature:
        token = int(logits.argmax())
    else:
        sums = np.exp(chances).cumsum()
        token = int(np.searchsorted(sums, draws.random() * sums[-1], side="right"))
    return token, float(chances[token])
