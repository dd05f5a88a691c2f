"""Sampling of all rows of a step in one call: by the engine where it can, else in NumPy."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, cast

from optc.runtime.executable.executable import Executable, Float32
from optc.runtime.executable.sampling import SamplingExecutable
from optc.runtime.sampling.sample_batch import pack, unpack
from optc.runtime.sampling.sampler import Drawn, Row, best_tokens, sample_row


class Samples(NamedTuple):
    """The tokens of the sampled rows.

    Attributes:
        drawn: [N] what was drawn from each.
        best: [N] the likeliest token of each row of logits as it is.
    """

    drawn: list[Drawn]
    best: list[int]


def sample_step(
    executable: Executable, logits: Float32, rows: Sequence[Row], at: Sequence[int]
) -> Samples:
    """Draw a token for each of N rows.

    Args:
        executable: The engine whose last step gave ``logits``.
        logits: [R, V].
        rows: The N rows' requests.
        at: [N] which row of ``logits`` each one is; several may be the same.
    """
    if not rows:
        return Samples([], [])
    if executable.spec.samples:
        batch = pack(rows, at, executable.spec.vocab_size)
        result = cast("SamplingExecutable", executable).sample(batch)
        return Samples(unpack(result, rows), result.best.tolist())
    best = best_tokens(logits)
    drawn = [sample_row(logits[i], row, best[i]) for row, i in zip(rows, at, strict=True)]
    return Samples(drawn, [best[i] for i in at])
