"""The largest calls of an engine, which its build bakes in and its runtime obeys."""

from __future__ import annotations

from dataclasses import dataclass

from optc.system.foreign.typed_json import Positive

#: New tokens of a sequence that one call verifies at most: the last one and seven drafts.
VERIFY_ROWS = 8
#: Rows of logits of one sequence that a prefill call gives at most.
PREFILL_LOGITS = 64
#: Slots are a multiple of this many tokens, so that kernels read whole vectors.
_ALIGNMENT = 16


@dataclass(frozen=True)
class Limits:
    """Of one profile: largest batch, new rows and rows of logits of a sequence.

    Attributes:
        name: Of the profile.
        batch: Sequences (B).
        rows: New tokens of each (S).
        logits: Rows of logits of each (R).
    """

    name: str
    batch: Positive
    rows: Positive
    logits: Positive


def slot_length(max_context: int) -> int:
    """Tokens that a slot must hold for sequences of ``max_context``.

    Calls over several sequences give all of them equally many rows; what a shorter one, or a slot
    between those that are used, gets too many must have a place behind its own tokens.
    """
    return -(-(max_context + VERIFY_ROWS) // _ALIGNMENT) * _ALIGNMENT
