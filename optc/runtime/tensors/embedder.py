"""`Embedder`: texts become vectors."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from optc.artifact.tasks.embedding import EMBEDDINGS
from optc.runtime.tensors.ranked import (
    Float64,
    Ranked,
    best_first,
    checked_pairs,
    checked_query,
    pairs_of,
)
from optc.runtime.tensors.texts import TextEngine

Float32 = npt.NDArray[np.float32]


class Embedded(NamedTuple):
    """Vectors f32[texts, D], and the tokens of each text."""

    vectors: Float32
    token_counts: list[int]


class Embedder(TextEngine):
    """A model of named tensors that embeds texts with the artifact's tokenizer.

    with optc.load("artifacts/minilm-encoder-int8") as embedder:
        vectors = embedder.embed(["a text", "another"])  # f32[2, D]
        best, *_ = embedder.rank("a question", ["an answer", "another"])
    """

    def embed(self, texts: Sequence[str], *, batch_size: int = 32) -> Float32:
        """Vectors f32[texts, D], in the order of the texts.

        Texts of about one length run together, so that little is padded. Longer ones than the model
        takes are cut.

        Raises:
            RequestError: A text is no text, or the batch holds none.
        """
        return self.embed_counted(texts, batch_size=batch_size).vectors

    def embed_counted(self, texts: Sequence[str], *, batch_size: int = 32) -> Embedded:
        """As `embed`, with the tokens of each text that the model reads: those of long texts that
        are cut off do not count.

        Raises:
            RequestError: As of `embed`.
        """
        found = self.rows(texts, EMBEDDINGS, batch_size)
        rows = [row for row, _ in found]
        vectors = np.stack(rows) if rows else np.empty((0, self.width), np.float32)
        return Embedded(vectors, [sum(one.attention_mask) for _, one in found])

    def rank(
        self, query: str, texts: Sequence[str], *, top: int | None = None, batch_size: int = 32
    ) -> list[Ranked]:
        """Texts by the cosine of their vectors with the query's, the nearest first.

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
        """Cosines [pairs] of the vectors of two texts. A text of several pairs is embedded once.

        Raises:
            RequestError: Something is no pair of texts, or the batch holds none.
        """
        given = checked_pairs(pairs)
        distinct = dict.fromkeys(text for pair in given for text in pair)
        places = {text: place for place, text in enumerate(distinct)}
        vectors = self.embed(list(places), batch_size=batch_size).astype(np.float64)
        units = vectors / np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), 1e-30)
        left, right = (units[[places[pair[side]] for pair in given]] for side in (0, 1))
        found: Float64 = np.einsum("ij,ij->i", left, right)
        return found

    @property
    def width(self) -> int:
        """Numbers of a vector; 0 where the model does not say."""
        dims = next(one.dims for one in self.outputs if one.name == EMBEDDINGS)
        return dims[-1] if isinstance(dims[-1], int) else 0
