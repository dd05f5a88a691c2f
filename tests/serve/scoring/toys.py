"""Engines with heads for tests of the server: a letter is a token."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from optc.runtime.executable.tensors import Array
from optc.runtime.executable.tensors_interface import DimRange, TensorsInterface, TensorSpec
from optc.runtime.tensors.classifier import Classifier
from optc.runtime.tensors.images import ImageInput
from optc.runtime.tensors.text_classifiers import Reranker, TextClassifier, TokenClassifier
from optc.runtime.tensors.texts import TextScores
from tests.serve.tensors.toys import letters

_MANY = {"batch": DimRange(1, 64), "tokens": DimRange(1, 64)}
_INFO: Mapping[str, Any] = {"name": "toy", "backend": "toys"}
LABELS = ("no", "yes", "maybe")
#: Of tokens: a is a person's first letter, b goes on with it, c is a place.
PARTS = ("O", "B-PER", "I-PER", "B-LOC")


class Computes:
    """An executable of one function."""

    batch_invariant = True

    def __init__(self, function: Callable[[Mapping[str, Array]], Array]) -> None:
        self._function = function

    def run(self, inputs: Mapping[str, Array]) -> dict[str, Array]:
        return {"logits": self._function(inputs).astype(np.float32)}

    def close(self) -> None:
        pass


def _of_texts(*classes: int | str) -> TensorsInterface:
    names = ("input_ids", "attention_mask")
    inputs = tuple(TensorSpec(name, "int64", ("batch", "tokens")) for name in names)
    output = TensorSpec("logits", "float32", ("batch", *classes))
    return TensorsInterface(inputs=inputs, outputs=(output,), symbols=_MANY)


def _sums(inputs: Mapping[str, Array]) -> Array:
    return np.asarray((inputs["input_ids"] * inputs["attention_mask"]).sum(1))


def reranker() -> Reranker:
    """Scores a pair by the sum of its letters, a is 1, over ten."""
    work = Computes(lambda inputs: _sums(inputs)[:, None] / 10)
    return Reranker(work, _of_texts(1), _INFO, letters(), TextScores(scores="plain"))


def text_classifier() -> TextClassifier:
    """The class of a text is the sum of its letters, modulo three."""
    work = Computes(lambda inputs: np.eye(3)[_sums(inputs) % 3])
    return TextClassifier(work, _of_texts(3), _INFO, letters(), TextScores(labels=LABELS))


def token_classifier() -> TokenClassifier:
    """Letters a to c have the labels of `PARTS`, others none."""
    work = Computes(lambda inputs: 9 * np.eye(4)[inputs["input_ids"] % 4])
    return TokenClassifier(work, _of_texts("tokens", 4), _INFO, letters(), TextScores(labels=PARTS))


def image_classifier() -> Classifier:
    """The class of an image of 2 by 2 is its brightest channel."""
    interface = TensorsInterface(
        inputs=(TensorSpec("image", "float32", ("batch", 3, 2, 2)),),
        outputs=(TensorSpec("logits", "float32", ("batch", 3)),),
        symbols={"batch": DimRange(1, 64)},
    )
    images = ImageInput("image", size=(2, 2), scale=1 / 255, labels=("red", "green", "blue"))
    work = Computes(lambda inputs: np.asarray(inputs["image"].mean((2, 3))))
    return Classifier(work, interface, _INFO, images)
