"""Workloads: when requests arrive, how long they are, and what they share.

Open loop: arrivals do not wait for the server, as users do not. Either Poisson arrivals,

    poisson:rate=4,requests=200,prompt=lognormal(256,0.6),output=lognormal(64,0.5)

or a recorded trace, one JSON object a line (`optc.proof.bench.trace`).
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np

from optc.errors import InputError
from optc.proof.bench.lengths import draw_lengths
from optc.proof.bench.trace import read_trace
from optc.runtime.executable.executable import Int32

Encode = Callable[[str], Sequence[int]]


@dataclass(frozen=True)
class Arrival:
    """One request of a workload.

    Attributes:
        arrival_s: When it arrives, from the workload's start.
        prompt_tokens: Length of its prompt; 0 if ``text`` gives it.
        output_tokens: Tokens to generate.
        prefix: Prompts of the same prefix id begin alike; None shares nothing.
        prefix_tokens: How many tokens of theirs are alike; None is the whole shorter one.
        text: The prompt itself, if it is known.
    """

    arrival_s: float
    prompt_tokens: int
    output_tokens: int
    prefix: str | None = None
    prefix_tokens: int | None = None
    text: str | None = None


class Job(NamedTuple):
    """A request that is ready to be sent: arrival in seconds, prompt [n], tokens to generate."""

    arrival_s: float
    prompt: Int32
    output_tokens: int


def read_workload(spec: str, seed: int = 0) -> list[Arrival]:
    """The arrivals that ``spec`` names, in order of time.

    Args:
        spec: ``poisson:key=value,…`` with the keys ``rate`` (a second), ``requests``, ``prompt``
            and ``output`` (`optc.proof.bench.lengths`), ``cv`` (coefficient of variation of the
            gaps; 1 is Poisson, more is burstier: gamma), ``prefix`` (tokens that prompts share) and
            ``prefixes`` (how many such beginnings there are); or the path of a trace.
        seed: Of the random lengths and times.

    Raises:
        InputError: The spec or the trace is wrong; says which key or line.
    """
    if spec.startswith("poisson:"):
        return _poisson(_keys(spec), np.random.default_rng(seed))
    path = Path(spec)
    if not path.is_file():
        raise InputError(
            f"{spec!r} is neither a file nor poisson:…",
            where="workload",
            hint="for example poisson:rate=4,requests=200,prompt=lognormal(256,0.6),output=64",
        )
    return [Arrival(**line) for line in read_trace(path)]


def make_jobs(
    arrivals: Sequence[Arrival],
    vocab_size: int,
    max_context: int,
    *,
    encode: Encode | None = None,
    seed: int = 0,
) -> tuple[list[Job], int]:
    """Prompts as token ids: random ones, or the trace's texts.

    Requests that do not fit the context are shortened, the prompt first.

    Returns:
        The jobs, and how many were shortened.

    Raises:
        InputError: There are texts but no tokenizer.
    """
    jobs: list[Job] = []
    shortened = 0
    for index, arrival in enumerate(arrivals):
        prompt = _prompt(arrival, vocab_size, encode, [seed, index])
        output = min(arrival.output_tokens, max_context - 1)
        fitting = prompt[: max_context - output]
        shortened += len(fitting) < len(prompt) or output < arrival.output_tokens
        jobs.append(Job(arrival.arrival_s, fitting, output))
    return jobs, shortened


def _prompt(arrival: Arrival, vocab_size: int, encode: Encode | None, seed: Sequence[int]) -> Int32:
    if arrival.text is not None:
        if encode is None:
            raise InputError("prompts are texts, but there is no tokenizer", where="workload")
        return np.array(encode(arrival.text), np.int32)
    count = arrival.prompt_tokens
    own = np.random.default_rng(seed).integers(0, vocab_size, count, np.int32)
    if arrival.prefix is not None:
        shared = count if arrival.prefix_tokens is None else min(count, arrival.prefix_tokens)
        stream = np.random.default_rng([seed[0], zlib.crc32(arrival.prefix.encode())])
        own[:shared] = stream.integers(0, vocab_size, shared, np.int32)
    return own


def _poisson(keys: dict[str, str], rng: np.random.Generator) -> list[Arrival]:
    count = int(_number(keys, "requests", 100))
    rate, cv = _number(keys, "rate", None), _number(keys, "cv", 1)
    gaps = rng.gamma(1 / cv**2, cv**2 / rate, count)
    prompts = draw_lengths(keys.pop("prompt", "128"), count, rng, "workload: prompt")
    outputs = draw_lengths(keys.pop("output", "64"), count, rng, "workload: output")
    shared = int(_number(keys, "prefix", 0, least=0))
    prefixes = rng.integers(0, int(_number(keys, "prefixes", 1)), count)
    if keys:
        raise InputError(
            f"unknown key {next(iter(keys))!r}",
            where="workload",
            hint="one of rate, requests, prompt, output, cv, prefix, prefixes",
        )
    return [
        Arrival(at, prompt, output, str(prefix) if shared else None, shared)
        for at, prompt, output, prefix in zip(
            np.cumsum(gaps).tolist(),
            prompts.tolist(),
            outputs.tolist(),
            prefixes.tolist(),
            strict=True,
        )
    ]


def _keys(spec: str) -> dict[str, str]:
    keys: dict[str, str] = {}
    for part in re.split(r",(?![^()]*\))", spec.split(":", 1)[1]):  # not inside brackets
        key, equals, value = part.partition("=")
        if not equals or key.strip() in keys:
            raise InputError(
                f"{part!r} is not key=value, each key once",
                where="workload",
                hint="for example poisson:rate=4,requests=200",
            )
        keys[key.strip()] = value.strip()
    return keys


def _number(
    keys: dict[str, str], key: str, default: float | None, least: float | None = None
) -> float:
    """Take a number out of the keys; it must be positive, or at least ``least``."""
    text = keys.pop(key, None)
    if text is None and default is not None:
        return default
    try:
        number = float(text or "missing")
    except ValueError:
        number = -1.0
    whole = key in ("rate", "cv") or number == int(number)
    if not whole or number < 0 or number == np.inf or (least is None and number == 0):
        raise InputError(
            f"{key} is {text or 'missing'}", where="workload", hint=f"for example {key}=4"
        )
    return number
