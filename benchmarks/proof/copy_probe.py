"""What an engine's KV cache keeps over a distance: a text, some other tokens, the same text again.

A model predicts the second copy better than the first, because it finds it in the cache. Keys and
values of few bits hurt that more than they hurt fresh text, which a mean divergence hides.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from optc.executable.executable import Executable, Int32
from optc.reference.teacher_forcing import SingleSequence, window_logits

#: Tokens of the text, and of what stands between it and its copy.
COPIED, BETWEEN = 220, 71
SIZE = 2 * COPIED + BETWEEN


def probes(stream: Int32, count: int) -> Int32:
    """``count`` probes [count, 511] from places evenly spaced in a text's tokens."""
    step = (len(stream) - COPIED - BETWEEN) // count
    starts = np.arange(count)[:, None] * step
    first = stream[starts + np.arange(COPIED + BETWEEN)]
    return np.concatenate([first, first[:, :COPIED]], axis=1).astype(np.int32)


def copy_nll(executable: Executable, rows: Iterable[Int32]) -> float:
    """Mean negative log-likelihood, nats, of the tokens of second copies; first ones excluded, for
    nothing says that the copy begins."""
    sequence, total, count = SingleSequence(executable, SIZE), 0.0, 0
    for row in rows:
        for start, logits in window_logits(sequence, row):
            predicted = np.arange(start, start + len(logits)) + 1
            inside = (predicted > COPIED + BETWEEN) & (predicted < SIZE)
            seen = logits[inside].astype(np.float64)
            seen -= seen.max(axis=1, keepdims=True)
            right = seen[np.arange(len(seen)), row[predicted[inside]]]
            total += float((np.log(np.exp(seen).sum(axis=1)) - right).sum())
            count += len(seen)
    return total / count
