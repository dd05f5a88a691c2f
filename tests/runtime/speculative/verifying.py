"""Sampling and verification of one request's drafts, as a step does them."""

from __future__ import annotations

from collections.abc import Sequence

from optc.runtime.executable.executable import Float32, Int32
from optc.runtime.sampling.sampler import Mask, Row, sample
from optc.runtime.step.verifier import Verdict, drafted_rows, verify


def verify_logits(
    logits: Float32,
    row: Row,
    drafted: Int32,
    masks: Sequence[Mask] | None = None,
    parents: Sequence[int] | None = None,
) -> Verdict:
    """From logits [1 + k, V] to the verdict over k drafts."""
    return verify(sample(logits, drafted_rows(row, drafted, masks, parents)), drafted, parents)
