"""The check of a step against an engine's limits, the same for every engine."""

from __future__ import annotations

from optc.errors import InputError
from optc.runtime.executable.executable import StepBatch, StepInterface


def check_limits(batch: StepBatch, spec: StepInterface) -> None:
    """Check the rows T, sequences B and rows with logits R of a step.

    Raises:
        InputError: One is 0 or above the engine's limit.
    """
    for what, value, limit in (
        ("rows", batch.tokens.size, spec.max_rows),
        ("sequences", batch.block_tables.shape[1], spec.max_sequences),
        ("rows of logits", batch.logit_rows.size, spec.max_logit_rows),
    ):
        if not 0 < value <= limit:
            raise InputError(
                f"{value} {what}; the engine takes 1 to {limit} in one step", where="step"
            )
