"""Talk to workers and measure them in turns, so that all see the same hours of the machine."""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

from benchmarks.peers.tools import FailedError, reason_of


class Worker:
    """One peer with one model in a process of its own.

    Raises:
        FailedError: It ended.
    """

    def __init__(self, command: Sequence[str]) -> None:
        self._log = tempfile.TemporaryFile("w+")  # noqa: SIM115 - closed with the process
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._log, text=True
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
        self._log.close()

    def _reason(self) -> str:
        self._log.seek(0)
        log = self._log.read()
        print(log, file=sys.stderr)
        return reason_of(log)

    def _read(self) -> dict[str, Any]:
        line = self._process.stdout.readline() if self._process.stdout else ""
        if not line:
            raise FailedError(f"the worker ended with {self._process.wait()}: {self._reason()}")
        try:
            answer: dict[str, Any] = json.loads(line)
        except ValueError as error:
            raise FailedError(f"the worker answered {line.strip()[:80]!r}") from error
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
class Column:
    """One figure of the table: what is asked of a worker, how often a round.

    Attributes:
        name: Heading; tokens per second.
        operation: Of `workers/serving.py`.
        arguments: Its arguments.
        tokens: Tokens that the answer's seconds were spent on.
        turns: How often a round; short turns let peers meet the same moments of the machine.
    """

    name: str
    operation: str
    arguments: dict[str, Any]
    tokens: int
    turns: int


@dataclass(frozen=True)
class Plan:
    """Token counts of one model's measurement.

    Attributes:
        prompt: Tokens of the prefill.
        context: Tokens of each prompt before decoding.
        new: Tokens of each sequence decoded in a round.
        batches: How many sequences are decoded together.
        prefill: Whether the prefill is measured, too.
    """

    prompt: int = 512
    context: int = 128
    new: int = 128
    batches: tuple[int, ...] = (1, 8, 16)
    prefill: bool = True

    def columns(self, prompts: list[list[int]]) -> list[Column]:
        """The columns to measure, with prompts cut to length."""
        found = []
        if self.prefill:
            tokens = prompts[0][: self.prompt]
            found.append(Column("prefill", "prefill", {"tokens": tokens}, self.prompt, 2))
        for batch in self.batches:
            # Many sequences spend most of their time on prompts, so that they have one turn.
            turns = 4 if batch == 1 else 1
            new = self.new // 4 if batch == 1 else self.new // 2
            starts = [prompt[: self.context] for prompt in prompts[:batch]]
            asked = {"prompts": starts, "new": new}
            found.append(Column(f"decode {batch}", "decode", asked, batch * new, turns))
        return found

    def warm_up(self) -> Plan:
        """The same shapes with a few tokens each; what is compiled at first use is compiled."""
        return replace(self, new=16)


@dataclass
class Samples:
    """Tokens per second of each turn by column."""

    rates: dict[str, list[float]] = field(default_factory=dict)

    def add(self, column: str, rate: float) -> None:
        """One more turn."""
        self.rates.setdefault(column, []).append(rate)

    def median(self, column: str) -> float:
        """Median over turns, tokens per second."""
        return statistics.median(self.rates[column])


def measure_round(rows: Sequence[tuple[Worker, Samples]], columns: Sequence[Column]) -> None:
    """One round: every turn of every column, workers one after the other within a turn."""
    for column in columns:
        for _ in range(column.turns):
            for worker, samples in rows:
                seconds = worker.ask(column.operation, **column.arguments)["seconds"]
                samples.add(column.name, column.tokens / seconds)
