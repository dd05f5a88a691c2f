"""`Embedder`: texts become vectors."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt

from optc.artifact.tasks.embedding import EMBEDDINGS
from optc.errors import ArtifactError, RequestError
from optc.runtime.executable.tensors import TensorsExecutable
from optc.runtime.executable.tensors_interface import TensorsInterface
from optc.runtime.tensors.engine import TensorEngine

if TYPE_CHECKING:
    import tokenizers

Float32 = npt.NDArray[np.float32]
Int64 = npt.NDArray[np.int64]


class Embedded(NamedTuple):
    """Vectors f32[texts, D], and the tokens of each text."""

    vectors: Float32
    token_counts: list[int]


class Embedder(TensorEngine):
    """A model of named tensors that embeds texts with the artifact's tokenizer.

    with optc.load("artifacts/minilm-encoder-int8") as embedder:
        vectors = embedder.embed(["a text", "another"])  # f32[2, D]
    """

    def __init__(
        self,
        executable: TensorsExecutable,
        interface: TensorsInterface,
        info: Mapping[str, Any],
        tokenizer: tokenizers.Tokenizer,
    ) -> None:
        super().__init__(executable, interface, info)
        self._tokenizer = tokenizer

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
        if isinstance(texts, str) or not all(isinstance(one, str) for one in texts):
            raise RequestError("texts are no list of texts", where="texts")
        if batch_size < 1:
            raise RequestError(f"{batch_size} texts at once", where="batch_size", hint="at least 1")
        order = sorted(range(len(texts)), key=lambda index: len(texts[index]))
        found: dict[int, Float32] = {}
        counts = [0] * len(texts)
        for start in range(0, len(order), batch_size):
            some = order[start : start + batch_size]
            encoded = self._tokenizer.encode_batch([texts[i] for i in some])
            for index, one in zip(some, encoded, strict=True):
                counts[index] = sum(one.attention_mask)
            inputs = _inputs_of(encoded, self._interface)
            found.update(zip(some, self.run(inputs)[EMBEDDINGS], strict=True))
        rows = [found[index] for index in range(len(texts))]
        vectors = np.stack(rows) if rows else np.empty((0, self.width), np.float32)
        return Embedded(vectors, counts)

    @property
    def width(self) -> int:
        """Numbers of a vector; 0 where the model does not say."""
        dims = next(one.dims for one in self.outputs if one.name == EMBEDDINGS)
        return dims[-1] if isinstance(dims[-1], int) else 0


def text_inputs(
    tokenizer: tokenizers.Tokenizer, texts: Sequence[str], interface: TensorsInterface
) -> dict[str, Int64]:
    """Ids, mask and types of tokens [texts, tokens] of texts, as far as the model takes them."""
    return _inputs_of(tokenizer.encode_batch(list(texts)), interface)


def _inputs_of(encoded: Sequence[Any], interface: TensorsInterface) -> dict[str, Int64]:
    """The same of texts that are encoded."""
    rows = {
        "input_ids": [one.ids for one in encoded],
        "attention_mask": [one.attention_mask for one in encoded],
        "token_type_ids": [one.type_ids for one in encoded],
    }
    names = [one.name for one in interface.inputs]
    return {name: np.array(rows[name], np.int64) for name in names}


def read_tokenizer(path: Path) -> tokenizers.Tokenizer:
    """The tokenizer of an artifact, with its truncation and padding.

    Raises:
        ArtifactError: The file is none.
    """
    import tokenizers

    try:
        return tokenizers.Tokenizer.from_file(str(path))
    except Exception as error:  # tokenizers raises plain Exceptions
        raise ArtifactError(f"is no tokenizer: {error}", where=str(path)) from error
