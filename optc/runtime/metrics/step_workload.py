"""The work of steps, in the units in which backends state the costs of their kernels."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

#: Of the experts of a layer, those that the rows of a step (or those with logits) choose.
_CHOSEN_KIND = re.compile("(T|R):([0-9]+)of([0-9]+)")


@dataclass
class StepWorkload:
    """Amounts of work, added up over steps; costs are linear in them (`optc.proof.roofline.costs`).

    Attributes:
        windows: Window of each KV group; 0 is full attention.
        steps: Steps.
        rows: Computed rows.
        logit_rows: Rows whose logits were wanted.
        kv_tokens: By group, tokens whose keys and values a step read, once a sequence.
        pairs: By group, pairs of a row and a token that it sees.
        steps_by_rows: Steps by their computed rows.
        steps_by_logit_rows: Steps by their rows whose logits were wanted.
    """

    windows: tuple[int, ...] = ()
    steps: int = 0
    rows: int = 0
    logit_rows: int = 0
    kv_tokens: list[int] = field(default_factory=list)
    pairs: list[int] = field(default_factory=list)
    steps_by_rows: dict[int, int] = field(default_factory=dict)  # no Counter: asdict breaks those
    steps_by_logit_rows: dict[int, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.kv_tokens = self.kv_tokens or [0] * len(self.windows)
        self.pairs = self.pairs or [0] * len(self.windows)

    def add_step(self, sequences: Sequence[tuple[int, int]], logit_rows: int) -> None:
        """Add a step: for each sequence its new rows and its tokens after them."""
        self.steps += 1
        self.logit_rows += logit_rows
        new_rows = sum(rows for rows, _ in sequences)
        self.rows += new_rows
        for counts, key in ((self.steps_by_rows, new_rows), (self.steps_by_logit_rows, logit_rows)):
            counts[key] = counts.get(key, 0) + 1
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
            self.steps_by_rows.copy(),
            self.steps_by_logit_rows.copy(),
        )

    def since(self, before: StepWorkload) -> StepWorkload:
        """The work added after ``before``."""
        return StepWorkload(
            self.windows,
            self.steps - before.steps,
            self.rows - before.rows,
            self.logit_rows - before.logit_rows,
            [a - b for a, b in zip(self.kv_tokens, before.kv_tokens, strict=True)],
            [a - b for a, b in zip(self.pairs, before.pairs, strict=True)],
            _since(self.steps_by_rows, before.steps_by_rows),
            _since(self.steps_by_logit_rows, before.steps_by_logit_rows),
        )

    def factors(self) -> dict[str, float]:
        """The amounts by the names that costs use: ``1``, ``T``, ``R``, ``kv<g>``, ``pairs<g>``;
        asked for, also ``T:8of128``, the experts (8 of 128 each) that the rows of the steps choose,
        and ``R:8of128``."""
        amounts = _Amounts(self.steps_by_rows.copy(), self.steps_by_logit_rows.copy())
        amounts |= {"1": float(self.steps), "T": float(self.rows), "R": float(self.logit_rows)}
        amounts |= {f"kv{g}": float(count) for g, count in enumerate(self.kv_tokens)}
        amounts |= {f"pairs{g}": float(count) for g, count in enumerate(self.pairs)}
        return amounts


class _Amounts(dict[str, float]):
    """Amounts by name; those of experts are computed when they are asked for."""

    def __init__(self, by_rows: Mapping[int, int], by_logit_rows: Mapping[int, int]) -> None:
        super().__init__()
        self._steps = {"T": by_rows, "R": by_logit_rows}

    def __missing__(self, kind: str) -> float:
        found = _CHOSEN_KIND.fullmatch(kind)
        if found is None:
            raise KeyError(kind)
        rows, chosen, experts = found[1], int(found[2]), int(found[3])
        return sum(
            steps * expected_experts(count, chosen, experts)
            for count, steps in self._steps[rows].items()
        )


def expected_experts(rows: int, chosen: int, experts: int) -> float:
    """The expected number of different experts that so many rows choose, each ``chosen`` different
    ones, where all are equally likely."""
    return experts * (1 - (1 - chosen / experts) ** rows)


def _since(counts: Mapping[int, int], before: Mapping[int, int]) -> dict[int, int]:
    grown = ((key, count - before.get(key, 0)) for key, count in counts.items())
    return {key: count for key, count in grown if count}


def visible_pairs(rows: int, length: int, window: int) -> int:
    """Pairs of one of the last ``rows`` rows of ``length`` and a token that it sees, itself
    included; each sees at most ``window`` tokens, all if that is 0."""
    whole = rows * length - rows * (rows - 1) // 2
    if not window or length <= window:
        return whole
    first = length - rows + 1  # tokens that the first of the rows could see
    growing = max(0, window - first)  # rows that see fewer than the window
    return rows * window - growing * (2 * window - 2 * first - growing + 1) // 2
