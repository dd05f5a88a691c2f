"""The contexts at which an engine's next-token distribution is farthest from the reference's."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from optc.proof.gates.divergence import RowScores
from optc.proof.gates.finite import NOT_FINITE
from optc.runtime.executable.executable import Int32

#: How many contexts a report lists, and how much of the text before each.
MOST = 8
CONTEXT_TOKENS = 32
CONTEXT_CHARACTERS = 120

#: Gives the text of token ids.
Decode = Callable[[Sequence[int]], str]


def decoder(tokenizer_file: Path | None) -> Decode | None:
    """Decodes by a tokenizer.json; None where there is none."""
    if tokenizer_file is None:
        return None
    import tokenizers  # a heavy import that random ids do not need

    tokenizer = tokenizers.Tokenizer.from_file(str(tokenizer_file))
    return lambda ids: tokenizer.decode(list(ids), skip_special_tokens=False)


@dataclass
class WorstContexts:
    """Keeps the `MOST` rows of largest KL of all rows that it is shown.

    Attributes:
        decode: Gives the text of token ids; None leaves texts out.
    """

    decode: Decode | None = None
    _kept: list[tuple[float, dict[str, Any]]] = field(default_factory=list)

    def add(self, window: int, ids: Int32, start: int, scores: RowScores) -> None:
        """Look at rows ``start``, ``start + 1``, … of a window.

        Args:
            window: Its number.
            ids: [S + 1] its token ids.
            start: Row of the first score.
            scores: Figures of the rows.
        """
        self.add_rows(window, ids, np.arange(start, start + len(scores.kl), dtype=np.int32), scores)

    def add_rows(self, window: int, ids: Int32, rows: Int32, scores: RowScores) -> None:
        """Look at some rows of a window.

        Args:
            window: Its number.
            ids: [S + 1] its token ids.
            rows: [R] which rows.
            scores: Figures of the rows.
        """
        kl = np.where(np.isnan(scores.kl), np.inf, scores.kl)  # not a number is the worst of all
        for index in np.argsort(-kl, kind="stable")[:MOST].tolist():
            if len(self._kept) == MOST and kl[index] <= self._kept[-1][0]:
                return  # of equal ones the first stays
            entry = self._entry(window, ids, int(rows[index]), scores, index)
            self._kept.append((float(kl[index]), entry))
            self._kept.sort(key=lambda kept: -kept[0])
            del self._kept[MOST:]

    def to_json(self) -> list[dict[str, Any]]:
        """The worst first: ``{kl, window, position, context, next, reference, engine}``.

        ``position`` counts from 0 within the window; ``context`` ends with the token there, and
        ``next`` is what follows it in the text. ``reference`` and ``engine`` are the likeliest
        tokens of each: ``{token, text, reference_probability, engine_probability}``. Texts are
        null without a tokenizer, and figures that are not finite are, too.
        """
        return [entry for _, entry in self._kept]

    @property
    def broken(self) -> str:
        """The side whose logits are no finite numbers, and the first place; empty if all are."""
        if not self._kept or self._kept[0][1]["kl"] is not None:
            return ""
        worst = self._kept[0][1]
        where = f"position {worst['position']} of window {worst['window']}"
        for whose in ("reference", "engine"):
            if worst[whose][f"{whose}_probability"] is None:
                return f"{NOT_FINITE.format(whose)} at {where}"
        return f"the divergence is infinite at {where}"

    def _entry(
        self, window: int, ids: Int32, row: int, scores: RowScores, index: int
    ) -> dict[str, Any]:
        before = ids[max(0, row + 1 - CONTEXT_TOKENS) : row + 1].tolist()
        context = self._text(before)
        reference, engine = (self._best(scores, index, column) for column in (0, 1))
        return {
            "kl": _finite(scores.kl[index]),
            "window": window,
            "position": row,
            "context": None if context is None else context[-CONTEXT_CHARACTERS:],
            "next": {"token": int(ids[row + 1]), "text": self._text([int(ids[row + 1])])},
            "reference": reference,
            "engine": engine,
        }

    def _best(self, scores: RowScores, index: int, column: int) -> dict[str, Any]:
        token = int(scores.best.tokens[index, column])
        return {
            "token": token,
            "text": self._text([token]),
            "reference_probability": _finite(np.exp(scores.best.log_p_reference[index, column])),
            "engine_probability": _finite(np.exp(scores.best.log_p_engine[index, column])),
        }

    def _text(self, ids: Sequence[int]) -> str | None:
        return None if self.decode is None else self.decode(ids)


def _finite(value: float) -> float | None:
    return float(value) if math.isfinite(value) else None
