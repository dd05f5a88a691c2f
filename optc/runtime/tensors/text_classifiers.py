"""Texts get classes, their tokens labels, and texts for a query scores."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from optc.errors import RequestError
from optc.runtime.executable.tensors import TensorsExecutable
from optc.runtime.executable.tensors_interface import TensorsInterface
from optc.runtime.tensors.classifier import Scored
from optc.runtime.tensors.ranked import (
    Float64,
    Ranked,
    best_first,
    checked_pairs,
    checked_query,
    pairs_of,
)
from optc.runtime.tensors.texts import Array, Text, TextEngine, TextScores

if TYPE_CHECKING:
    import tokenizers

#: Labels of tokens that are part of nothing.
_OUTSIDE = "O"
#: Where a token stands in its part, of all schemes that are in use (IOB, BIOES, BILOU).
_PLACES = frozenset("BIOESLU")


class ScoredTexts(TextEngine):
    """A model of texts with scores as its first output."""

    def __init__(
        self,
        executable: TensorsExecutable,
        interface: TensorsInterface,
        info: Mapping[str, Any],
        tokenizer: tokenizers.Tokenizer,
        scores: TextScores,
    ) -> None:
        super().__init__(executable, interface, info, tokenizer)
        self.scores = scores

    def _scores(self, texts: Sequence[Text], batch_size: int) -> list[tuple[Array, Any]]:
        """Scores of each text, and how it is encoded."""
        rows = self.rows(texts, self.outputs[0].name, batch_size)
        return [(self.scores.probabilities(row), encoded) for row, encoded in rows]


class TextClassifier(ScoredTexts):
    """A model of named tensors that gives classes of texts.

    with optc.load("artifacts/sentiment-encoder-int8") as classifier:
        (best, *_), = classifier.classify(["It works."])
        best.label, best.score
    """

    def classify(
        self, texts: Sequence[Text], *, top: int = 5, batch_size: int = 32
    ) -> list[list[Scored]]:
        """The likeliest classes of each text, the likeliest first.

        Args:
            texts: Texts, or pairs of them that are read together.
            top: So many classes of each.
            batch_size: Texts of a call.

        Raises:
            RequestError: Something is no text, or a number is not positive.
        """
        if top < 1:
            raise RequestError(f"is {top}", where="top", hint="at least 1")
        return [self._best(row, top) for row, _ in self._scores(texts, batch_size)]

    def _best(self, row: Array, top: int) -> list[Scored]:
        order = np.argsort(-row, kind="stable")[:top]
        return [Scored(self.scores.label(int(i)), float(row[i]), int(i)) for i in order]


class Reranker(ScoredTexts):
    """A model of named tensors that scores texts for a query, which it reads together.

    with optc.load("artifacts/reranker-encoder-int8") as reranker:
        best, *_ = reranker.rank("a question", ["an answer", "another"])
        best.index, best.score
    """

    def rank(
        self, query: str, texts: Sequence[str], *, top: int | None = None, batch_size: int = 32
    ) -> list[Ranked]:
        """Texts by their scores for the query, the highest first.

        Args:
            query: What is asked for.
            texts: To choose among.
            top: So many of them; None is all.
            batch_size: Texts of a call.

        Raises:
            RequestError: A text is no text, or a number is not positive.
        """
        checked_query(query, top)
        return best_first(self.score(pairs_of(query, texts), batch_size=batch_size), top)

    def score(self, pairs: Sequence[tuple[str, str]], *, batch_size: int = 32) -> Float64:
        """Scores [pairs] of texts, each for the query before it, in their order.

        Raises:
            RequestError: Something is no pair of texts, or the batch holds none.
        """
        return np.array([row[0] for row, _ in self._scores(checked_pairs(pairs), batch_size)])


@dataclass(frozen=True)
class Labelled:
    """A part of a text with one label.

    Attributes:
        label: Its name, without the ``B-`` and ``I-`` of beginnings and insides.
        score: Mean probability of its tokens' labels.
        start, end: Where it stands in the text, in characters.
        text: What stands there.
    """

    label: str
    score: float
    start: int
    end: int
    text: str


class TokenClassifier(ScoredTexts):
    """A model of named tensors that labels parts of texts, such as names.

    with optc.load("artifacts/ner-encoder-int8") as labels:
        for part in labels.classify(["Ada lives in London."])[0]:
            print(part.label, part.text)
    """

    def classify(self, texts: Sequence[str], *, batch_size: int = 32) -> list[list[Labelled]]:
        """The labelled parts of each text, in order; what is labelled ``O`` is left out.

        Neighbouring tokens of one label are one part, as far as none says that it begins another.

        Raises:
            RequestError: Something is no text, or the batch holds none.
        """
        found = self._scores(texts, batch_size)
        return [self._parts(*one, text) for one, text in zip(found, texts, strict=True)]

    def _parts(self, row: Array, encoded: Any, text: str) -> list[Labelled]:
        found: list[tuple[str, list[float], int, int]] = []
        previous = -1
        for place, (start, end) in enumerate(encoded.offsets):
            if encoded.special_tokens_mask[place] or not encoded.attention_mask[place]:
                continue
            index = int(row[place].argmax())
            begins, kind = _parted(self.scores.label(index))
            score = float(row[place][index])
            if kind == _OUTSIDE:
                pass
            elif found and previous == place - 1 and found[-1][0] == kind and begins != "B":
                label, scores, first, _ = found[-1]
                found[-1] = (label, [*scores, score], first, end)
                previous = place
            else:
                found.append((kind, [score], start, end))
                previous = place
        return [
            Labelled(label, sum(scores) / len(scores), start, end, text[start:end])
            for label, scores, start, end in found
        ]


def _parted(label: str) -> tuple[str, str]:
    """``B`` or ``I``, or nothing, and the kind of a part, whose own name may have hyphens."""
    begins, hyphen, kind = label.partition("-")
    return (begins, kind) if hyphen and begins in _PLACES else ("", label)
