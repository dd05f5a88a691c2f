"""Prompts for servers whose tokenizer is not at hand: words, about as many as tokens are wanted."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from optc.proof.bench.workload import Arrival, make_jobs

#: Common words, which most tokenizers have a token for.
_TEXT = (
    "the of and to in is you that it he was for on are as with his they at be this have from "
    "or one had by word but not what all were we when your can said there use an each which "
    "she do how their if will up other about out many then them these so some her would make "
    "like him into time has look two more write go see number no way could people my than "
    "first water been call who oil its now find long down day did get come made may part"
)
WORDS = tuple(_TEXT.split())
#: A server that states no context gets what is asked for.
_ANY_CONTEXT = 1 << 30


class Asking(NamedTuple):
    """A request to send: when, in seconds; its text; the tokens to generate."""

    arrival_s: float
    prompt: str
    output_tokens: int


def make_askings(
    arrivals: Sequence[Arrival],
    *,
    tokens_per_word: float = 1.0,
    max_context: int | None = None,
    seed: int = 0,
) -> tuple[list[Asking], int]:
    """Requests with texts as prompts: random words, or the texts of a trace. Prompts with one
    prefix id begin alike.

    Args:
        arrivals: As of `optc.proof.bench.workload.read_workload`.
        tokens_per_word: Of the server's tokenizer.
        max_context: Tokens of the server's context; longer requests are shortened, the prompt
            first. None shortens none.
        seed: Of the words.

    Returns:
        The requests, and how many were shortened; texts of a trace are not.
    """
    words = [_in_words(one, tokens_per_word) for one in arrivals]
    most = _ANY_CONTEXT if max_context is None else int(max_context / max(1.0, tokens_per_word))
    jobs, shortened = make_jobs(words, len(WORDS), most, encode=lambda text: [0], seed=seed)
    askings = [
        Asking(job.arrival_s, one.text or _text(job.prompt), job.output_tokens)
        for one, job in zip(arrivals, jobs, strict=True)
    ]
    return askings, shortened


def sample_text() -> str:
    """Every word once, to learn how many tokens a word has."""
    return " ".join(WORDS)


def _in_words(arrival: Arrival, tokens_per_word: float) -> Arrival:
    """An arrival whose prompt is as long as another in words."""
    if arrival.text is not None:
        return arrival
    count = max(1, round(arrival.prompt_tokens / tokens_per_word))
    shared = arrival.prefix_tokens
    words = None if shared is None else max(1, round(shared / tokens_per_word)) if shared else 0
    return Arrival(arrival.arrival_s, count, arrival.output_tokens, arrival.prefix, words)


def _text(words: np.ndarray) -> str:
    return " ".join(WORDS[index] for index in words.tolist())
