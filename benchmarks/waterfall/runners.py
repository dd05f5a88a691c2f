"""Servers of requests: PyTorch, or an artifact of optc."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Protocol

import optc
from benchmarks.waterfall.steps import Step
from benchmarks.waterfall.workload import BATCH, Request, batches


class Runner(Protocol):
    """Serves requests; outputs are greedy, and no token ends one."""

    def generate(self, requests: list[Request]) -> None:
        """Serve requests together, each to its own length where the runner can."""


class Eager:
    """transformers in float32, as `from_pretrained` gives it, with a growing cache.

    Args:
        folder: Hugging Face folder.
        threads: Of PyTorch.
    """

    def __init__(self, folder: Path, threads: int) -> None:
        import torch
        from transformers import AutoModelForCausalLM

        torch.set_num_threads(threads)
        self._torch = torch
        self._model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()

    def generate(self, requests: list[Request]) -> None:
        """One batch, up to its longest answer; prompts are of equal length."""
        torch = self._torch
        tokens = torch.tensor([request.prompt for request in requests])
        cache: Any = None
        with torch.inference_mode():
            for _ in range(max(request.new for request in requests)):
                found = self._model(
                    input_ids=tokens, past_key_values=cache, use_cache=True, logits_to_keep=1
                )
                cache, tokens = found.past_key_values, found.logits.argmax(dim=-1)


class Served:
    """An engine of optc."""

    def __init__(self, engine: Any) -> None:
        self._engine = engine

    def generate(self, requests: list[Request]) -> None:
        """All of them, each to its own length."""
        handles = [
            self._engine.submit(
                request.prompt,
                optc.SamplingParams(max_tokens=request.new, temperature=0.0, ignore_eos=True),
            )
            for request in requests
        ]
        for handle in handles:
            handle.result()


@contextmanager
def runner(step: Step, path: Path, threads: int) -> Iterator[Runner]:
    """The server of a step's requests; ``path`` is the folder of the model or of the artifact."""
    if step.variant is None:
        yield Eager(path, threads)
        return
    with optc.load(path, threads=threads, max_sequences=BATCH, **step.serving) as engine:
        yield Served(engine)


def seconds_alone(one: Runner, requests: list[Request]) -> float:
    """Seconds of requests one after the other."""
    start = time.perf_counter()
    for request in requests:
        one.generate([request])
    return time.perf_counter() - start


def seconds_together(one: Runner, requests: list[Request], *, continuous: bool) -> float:
    """Seconds of requests in static batches, where each request is computed up to the longest of
    its batch, or all at once."""
    start = time.perf_counter()
    if continuous:
        one.generate(requests)
    else:
        for batch in batches(requests):
            longest = max(request.new for request in batch)
            one.generate([Request(request.prompt, longest) for request in batch])
    return time.perf_counter() - start
