"""Beam search as a plain statement: whole arrays, everything computed again for every token."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from optc.runtime.beams.search import EarlyStopping

Logits = Callable[[list[int]], npt.NDArray[Any]]


def search_naively(
    logits: Logits,
    prompt: list[int],
    *,
    width: int,
    max_tokens: int,
    ends: frozenset[int] = frozenset(),
    length_penalty: float = 1.0,
    early_stopping: EarlyStopping = False,
) -> list[tuple[list[int], float]]:
    """Outputs and their log-probabilities, best first."""
    live: list[tuple[list[int], float]] = [([], 0.0)]
    done: list[tuple[float, list[int], float]] = []
    for length in range(1, max_tokens + 1):
        scores = []
        for output, total in live:
            row = logits(prompt + output).astype(np.float64)
            top = row.max()
            scores.append(total + (row - (top + np.log(np.exp(row - top).sum()))))
        flat = np.concatenate(scores)
        vocab = len(flat) // len(live)
        order = np.argsort(-flat, kind="stable")[: max(2, 1 + len(ends)) * width]
        full = len(done) == width
        going: list[tuple[list[int], float]] = []
        for rank, index in enumerate(order.tolist()):
            token = index % vocab
            output = [*live[index // vocab][0], token]
            if token in ends or length == max_tokens:
                if rank < width and not (early_stopping is True and full):
                    done.append((flat[index] / length**length_penalty, output, flat[index]))
            else:
                going.append((output, float(flat[index])))
        done = sorted(done, key=lambda each: -each[0])[:width]
        live = going[:width]
        if not live:
            break
        if len(done) == width:
            reach = max_tokens if early_stopping == "never" and length_penalty > 0 else length
            hopeless = live[0][1] / reach**length_penalty <= done[-1][0]
            if early_stopping is True or hopeless:
                break
    return [(output, total) for _, output, total in done]
