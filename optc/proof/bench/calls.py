"""Speed of models that do not generate text token by token: whole calls of some items at once."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from optc.errors import InputError
from optc.proof.bench.interleaved import CALL_METRICS, Compared
from optc.system.progress import Progress, no_progress

#: Calls of each number of items, which end early once they take so long in all.
ROUNDS, _SECONDS = 20, 10.0
_PARTS = (50, 90, 99)


@dataclass(frozen=True)
class Calls:
    """An engine, and what it is asked.

    Attributes:
        unit: What an item is: ``texts``, ``images``, ``sounds``, ``rows`` or ``calls``.
        run: Makes a call of so many items; gives what it amounts to beside them: ``tokens``, or
            ``audio_seconds``.
        least, most: Items that a call may have.
    """

    unit: str
    run: Callable[[int], Mapping[str, float]]
    least: int = 1
    most: int = 1 << 20


@dataclass(frozen=True)
class Called:
    """Calls of one number of items.

    Attributes:
        concurrency: Items at once.
        seconds: Of each call, in order.
        amounts: Sums over all calls.
    """

    concurrency: int
    seconds: Sequence[float]
    amounts: Mapping[str, float]

    def to_json(self, unit: str) -> dict[str, Any]:
        """An element of ``results``."""
        spent = sum(self.seconds)
        parts = np.percentile(np.array(self.seconds) * 1e3, _PARTS)
        latency = {f"p{part}": float(value) for part, value in zip(_PARTS, parts, strict=True)}
        median = float(np.median(self.seconds))
        return {
            "concurrency": self.concurrency,
            "unit": unit,
            "calls": len(self.seconds),
            "items_per_s": self.concurrency / median,
            "tokens_per_s": _rate(self.amounts.get("tokens"), spent),
            "audio_seconds_per_s": _rate(self.amounts.get("audio_seconds"), spent),
            "latency_ms": latency,
        }


def measure_calls(
    engines: Sequence[Calls],
    counts: Sequence[int],
    rounds: int | None = None,
    progress: Progress = no_progress,
) -> list[list[Called]]:
    """Time calls of one or several engines, which take turns.

    Args:
        engines: Of one unit.
        counts: Numbers of items at once.
        rounds: Calls of each; None are `ROUNDS`, or fewer where those take long.
        progress: Told what goes on.

    Returns:
        For each count the result of every engine, in order.
    """
    found = []
    for index, count in enumerate(counts):
        progress("measure", index, len(counts))
        for one in engines:
            one.run(count)  # what a first call allocates is no part of later ones
        seconds: list[list[float]] = [[] for _ in engines]
        sums: list[dict[str, float]] = [{} for _ in engines]
        started = time.perf_counter()
        for _ in range(rounds or ROUNDS):
            for one, taken, amounts in zip(engines, seconds, sums, strict=True):
                begun = time.perf_counter()
                made = one.run(count)
                taken.append(time.perf_counter() - begun)
                for name, amount in made.items():
                    amounts[name] = amounts.get(name, 0.0) + amount
            if rounds is None and time.perf_counter() - started > _SECONDS:
                break
        pairs = zip(seconds, sums, strict=True)
        found.append([Called(count, taken, amounts) for taken, amounts in pairs])
    return found


def compare_calls(found: Sequence[Sequence[Called]]) -> list[Compared]:
    """Figures of two engines that took turns, as of `measure_calls`: items a second, and the
    milliseconds of a call."""
    compared = []
    for first, second in found:
        pairs = np.array([first.seconds, second.seconds])
        ratios = pairs[1] / pairs[0]
        medians = np.median(pairs, axis=1)
        rates = first.concurrency / medians
        for metric, values, ratio in (
            (CALL_METRICS[0], rates, 1 / ratios),
            (CALL_METRICS[1], medians * 1e3, ratios),
        ):
            of_all = float(np.median(ratio)), float(ratio.min()), float(ratio.max())
            one, other = (float(value) for value in values)
            compared.append(Compared(metric, first.concurrency, one, other, *of_all))
    return compared


def fitting(engines: Sequence[Calls], counts: Sequence[int], warnings: list[str]) -> list[int]:
    """Those of ``counts`` that all engines take; a warning names the others.

    Raises:
        InputError: They take none.
    """
    least, most = max(one.least for one in engines), min(one.most for one in engines)
    kept = [count for count in counts if least <= count <= most]
    left = ", ".join(str(count) for count in counts if count not in kept)
    if not kept:
        raise InputError(
            f"a call has {least} to {most} {engines[0].unit}, not {left}",
            where="--concurrency",
            hint=f"--concurrency {least}",
        )
    if left:
        unit = engines[0].unit
        warnings.append(f"{left} at once are left out: a call has {least} to {most} {unit}")
    return kept


def _rate(amount: float | None, seconds: float) -> float | None:
    return None if amount is None else amount / seconds
