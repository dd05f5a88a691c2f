"""What steps computed, in the units in which backends state the costs of their kernels."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field


@dataclass
class StepWorkload:
    """Amounts of work, added up over steps; costs are linear in them (`optc.roofline.costs`).

    Attributes:
        windows: Window of each KV group; 0 is full attention.
        steps: Steps.
        rows: Computed rows.
        logit_rows: Rows whose logits were wanted.
        kv_tokens: By group, tokens whose keys and values a step read, once a sequence.
        pairs: By group, pairs of a row and a token that it sees.
    """

    windows: tuple[int, ...] = ()
    steps: int = 0
    rows: int = 0
    logit_rows: int = 0
    kv_tokens: list[int] = field(default_factory=list)
    pairs: list[int] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.kv_tokens = self.kv_tokens or [0] * len(self.windows)
        self.pairs = self.pairs or [0] * len(self.windows)

    def add_step(self, sequences: Sequence[tuple[int, int]], logit_rows: int) -> None:
        """Add a step: for each sequence its new rows and its tokens after them."""
        self.steps += 1
        self.logit_rows += logit_rows
        self.rows += sum(rows for rows, _ in sequences)
        for group, window in enumerate(self.windows):
            tokens = pairs = 0
            for rows, length in sequences:
                read = min(length, window + rows - 1) if window else length
                tokens += read
                pairs += read if rows == 1 else visible_pairs(rows, length, window)
            self.kv_tokens[group] += tokens
            self.pairs[group] += pairs

    def copy(self) -> StepWorkload:
        """The same amounts in an object of its own."""
        return StepWorkload(
            self.windows,
            self.steps,
            self.rows,
            self.logit_rows,
            self.kv_tokens.copy(),
            self.pairs.copy(),
        )

    def since(self, before: StepWorkload) -> StepWorkload:
        """What was added after ``before``."""
        return StepWorkload(
            self.windows,
            self.steps - before.steps,
            self.rows - before.rows,
            self.logit_rows - before.logit_rows,
            [a - b for a, b in zip(self.kv_tokens, before.kv_tokens, strict=True)],
            [a - b for a, b in zip(self.pairs, before.pairs, strict=True)],
        )

    def factors(self) -> dict[str, float]:
        """The amounts by the names that costs use: ``1``, ``T``, ``R``, ``kv<g>``, ``pairs<g>``."""
        named = {"1": float(self.steps), "T": float(self.rows), "R": float(self.logit_rows)}
        named |= {f"kv{g}": float(count) for g, count in enumerate(self.kv_tokens)}
        return named | {f"pairs{g}": float(count) for g, count in enumerate(self.pairs)}


def visible_pairs(rows: int, length: int, window: int) -> int:
    """Pairs of one of the last ``rows`` rows of ``length`` and a token that it sees, itself
    included; each sees at most ``window`` tokens, all if that is 0."""
    whole = rows * length - rows * (rows - 1) // 2
    if not window or length <= window:
        return whole
    first = length - rows + 1  # tokens that the first of the rows could see
    growing = max(0, window - first)  # rows that see fewer than the window
    return rows * window - growing * (2 * window - 2 * first - growing + 1) // 2
