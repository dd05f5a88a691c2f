"""Texts become the inputs of a model, and its rows go back to the texts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import msgspec
import numpy as np
import numpy.typing as npt

from optc.errors import ArtifactError, RequestError
from optc.runtime.checks import checked_texts
from optc.runtime.executable.tensors import TensorsExecutable
from optc.runtime.executable.tensors_interface import TensorsInterface
from optc.runtime.tensors.engine import TensorEngine
from optc.system.foreign.file import read_file

if TYPE_CHECKING:
    import tokenizers

Array = npt.NDArray[Any]
Int64 = npt.NDArray[np.int64]
#: A text, or two that are read together: a question and an answer, a premise and a conclusion.
Text: TypeAlias = "str | tuple[str, str]"
#: Where an artifact says what its scores of texts are.
TEXTS_FILE = "texts/input.json"


class TextScores(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The scores that a model of texts gives.

    Attributes:
        labels: Names of the classes, in order; empty calls them by their numbers.
        scores: How they become probabilities: of classes of which one holds (``softmax``), of
            each apart (``sigmoid``), or not (``plain``).
        prompt: Stands before each text.
    """

    labels: tuple[str, ...] = ()
    scores: Literal["softmax", "sigmoid", "plain"] = "softmax"
    prompt: str = ""

    def label(self, index: int) -> str:
        """The name of a class."""
        return self.labels[index] if index < len(self.labels) else str(index)

    def probabilities(self, rows: Array) -> npt.NDArray[np.float64]:
        """Logits [..., classes] as they are shown."""
        rows = rows.astype(np.float64)
        if self.scores == "plain":
            return rows
        if self.scores == "sigmoid":
            return np.asarray(1 / (1 + np.exp(-rows)))
        shifted = np.exp(rows - rows.max(axis=-1, keepdims=True))
        return np.asarray(shifted / shifted.sum(axis=-1, keepdims=True))


class TextEngine(TensorEngine):
    """A model of named tensors that reads texts with the artifact's tokenizer."""

    def __init__(
        self,
        executable: TensorsExecutable,
        interface: TensorsInterface,
        info: Mapping[str, Any],
        tokenizer: tokenizers.Tokenizer,
        prompt: str = "",
    ) -> None:
        super().__init__(executable, interface, info)
        self._tokenizer, self._prompt = tokenizer, prompt

    def rows(self, texts: Sequence[Text], output: str, batch_size: int) -> list[tuple[Array, Any]]:
        """An output's part for each text, and the text as the tokenizer encodes it, in order.

        Texts of about one length run together, so that little is padded. Longer ones than the model
        takes are cut.

        Raises:
            RequestError: A text is no text, or the batch holds none.
        """
        texts = checked_texts(texts)
        if batch_size < 1:
            raise RequestError(f"{batch_size} texts at once", where="batch_size", hint="at least 1")
        order = sorted(range(len(texts)), key=lambda index: _length(texts[index]))
        found: dict[int, tuple[Array, Any]] = {}
        for start in range(0, len(order), batch_size):
            some = order[start : start + batch_size]
            encoded = self._encoded([texts[i] for i in some])
            rows = self.run(_inputs_of(encoded, self._interface))[output]
            found.update(zip(some, zip(rows, encoded, strict=True), strict=True))
        return [found[index] for index in range(len(texts))]

    def count_tokens(self, texts: Sequence[Text]) -> int:
        """Tokens of texts as far as the model reads them, together."""
        return sum(sum(one.attention_mask) for one in self._encoded(texts))

    def _encoded(self, texts: Sequence[Text]) -> list[Any]:
        if self._prompt:
            texts = [f"{self._prompt}{text}" for text in texts]
        return _encoded(self._tokenizer, texts)


def _length(one: Text) -> int:
    return len(one) if isinstance(one, str) else sum(map(len, one))


def text_inputs(
    tokenizer: tokenizers.Tokenizer, texts: Sequence[Text], interface: TensorsInterface
) -> dict[str, Int64]:
    """Ids, mask and types of tokens [texts, tokens] of texts, as far as the model takes them."""
    return _inputs_of(_encoded(tokenizer, texts), interface)


def _encoded(tokenizer: tokenizers.Tokenizer, texts: Sequence[Text]) -> list[Any]:
    given = [one if isinstance(one, str) else tuple(one) for one in texts]
    found: list[Any] = tokenizer.encode_batch(given)
    return found


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


def read_scores(path: Path) -> TextScores:
    """The scores that an artifact's file describes.

    Raises:
        ArtifactError: The file is missing or damaged.
    """
    try:
        return msgspec.json.decode(read_file(path), type=TextScores)
    except (OSError, msgspec.DecodeError) as error:
        raise ArtifactError(
            f"does not say what scores of texts are: {error}", where=str(path)
        ) from error
