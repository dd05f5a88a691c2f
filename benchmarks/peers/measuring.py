"""Talk to workers and measure them in turns, so that all see the same hours of the machine."""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any


class Worker:
    """One peer with one model in a process of its own."""

    def __init__(self, command: Sequence[str]) -> None:
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=sys.stderr, text=True
        )
        self.about: dict[str, str] = self._read()["ready"]

    def ask(self, operation: str, **arguments: Any) -> dict[str, Any]:
        """One operation of `workers/serving.py`."""
        if self._process.stdin is None:
            raise RuntimeError("the worker has no stdin")
        self._process.stdin.write(json.dumps({"op": operation, **arguments}) + "\n")
        self._process.stdin.flush()
        return self._read()

    def close(self) -> None:
        """End the process."""
        self._process.communicate()

    def _read(self) -> dict[str, Any]:
        line = self._process.stdout.readline() if self._process.stdout else ""
        if not line:
            raise SystemExit(f"{self._process.args} ended with {self._process.wait()}")
        answer: dict[str, Any] = json.loads(line)
        return answer


@contextmanager
def started(command: Sequence[str]) -> Iterator[Worker]:
    """A worker that is closed afterwards."""
    worker = Worker(command)
    try:
        yield worker
    finally:
        worker.close()


@dataclass(frozen=True)
class Plan:
    """Token counts of one model's measurement.

    Attributes:
        prompt: Tokens of the prefill.
        context: Tokens of each prompt before decoding.
        new: Tokens decoded at batch 1.
        batches: Batch sizes beyond 1, decoding ``new`` // 2 tokens each.
    """

    prompt: int = 512
    context: int = 128
    new: int = 128
    batches: tuple[int, ...] = (8, 16)

    def warm_up(self) -> Plan:
        """The same shapes with a few tokens each; what is compiled at first use is compiled."""
        return replace(self, new=8)


@dataclass
class Samples:
    """Tokens per second of each round by column."""

    rates: dict[str, list[float]] = field(default_factory=dict)

    def add(self, column: str, rate: float) -> None:
        """One more round."""
        self.rates.setdefault(column, []).append(rate)

    def median(self, column: str) -> float:
        """Median over rounds, tokens per second."""
        return statistics.median(self.rates[column])


def measure_round(worker: Worker, plan: Plan, prompts: list[list[int]], out: Samples) -> None:
    """One round of all columns with one worker."""
    seconds = worker.ask("prefill", tokens=prompts[0][: plan.prompt])["seconds"]
    out.add("prefill", plan.prompt / seconds)
    for batch in (1, *plan.batches):
        new = plan.new if batch == 1 else plan.new // 2
        starts = [prompt[: plan.context] for prompt in prompts[:batch]]
        seconds = worker.ask("decode", prompts=starts, new=new)["seconds"]
        out.add(f"decode {batch}", batch * new / seconds)
