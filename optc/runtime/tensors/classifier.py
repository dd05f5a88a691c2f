"""`Classifier`: images get classes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt

from optc.errors import ArtifactError, RequestError
from optc.runtime.executable.tensors import TensorsExecutable
from optc.runtime.executable.tensors_interface import DimRange, TensorsInterface
from optc.runtime.tensors.engine import TensorEngine
from optc.runtime.tensors.images import ImageInput
from optc.system.foreign.file import read_file

Float32 = npt.NDArray[np.float32]
#: Where an artifact says how images are read.
IMAGES_FILE = "images/input.json"


@dataclass(frozen=True)
class Scored:
    """A class of an image or a text.

    Attributes:
        label: Its name, or its number as text.
        score: Its probability.
        index: Its number.
    """

    label: str
    score: float
    index: int


class Classifier(TensorEngine):
    """A model of named tensors that gives classes of images.

    with optc.load("artifacts/resnet-vision-int8") as classifier:
        (best, *_), = classifier.classify(["cat.jpg"])
        best.label, best.score
    """

    def __init__(
        self,
        executable: TensorsExecutable,
        interface: TensorsInterface,
        info: Mapping[str, Any],
        images: ImageInput,
    ) -> None:
        super().__init__(executable, interface, info)
        self.images = images

    def classify(
        self, images: Sequence[Any], *, top: int = 5, batch_size: int = 16
    ) -> list[list[Scored]]:
        """The likeliest classes of each image, the likeliest first.

        Args:
            images: Paths, images of Pillow, or arrays u8[H, W, 3] (red, green, blue).
            top: So many classes of each.
            batch_size: Images of a call.

        Raises:
            RequestError: Something is no image, or a number is not positive.
            UnavailableError: Pillow is missing, and an image has to be read or resized.
        """
        for name, value in (("top", top), ("batch_size", batch_size)):
            if value < 1:
                raise RequestError(f"is {value}", where=name, hint="at least 1")
        if isinstance(images, str | bytes) or not hasattr(images, "__len__"):
            raise RequestError("are no list of images", where="images")
        scores = self._scores(images, batch_size)
        return [self._best(row, top) for row in scores]

    def _scores(self, images: Sequence[Any], batch_size: int) -> list[Float32]:
        found: list[Float32] = []
        (spec,) = self.inputs
        first = spec.dims[0]
        symbols = self._interface.symbols
        bounds = DimRange(first, first) if isinstance(first, int) else symbols[first]
        size = max(bounds.least, min(batch_size, bounds.most))
        for start in range(0, len(images), size):
            for rows in _alike(self.images.batch(list(images[start : start + size]))):
                count = len(rows)
                rows += rows[-1:] * (bounds.least - count)
                outputs = self.run({spec.name: np.stack(rows)})
                found += list(outputs[self.outputs[0].name][:count])
        return found

    def _best(self, row: Float32, top: int) -> list[Scored]:
        chances = row if self.images.scores == "probabilities" else softmax(row)
        order = np.argsort(-chances, kind="stable")[:top]
        return [Scored(self._label(i), float(chances[i]), int(i)) for i in order]

    def _label(self, index: int) -> str:
        labels = self.images.labels
        return labels[index] if index < len(labels) else str(index)


def softmax(row: npt.NDArray[Any]) -> npt.NDArray[np.float64]:
    """Probabilities f64[N] of logits."""
    shifted = np.exp(row.astype(np.float64) - row.max())
    found: npt.NDArray[np.float64] = shifted / shifted.sum()
    return found


def _alike(rows: Sequence[Float32]) -> list[list[Float32]]:
    """Neighbours of one shape together."""
    found: list[list[Float32]] = []
    for row in rows:
        if found and found[-1][0].shape == row.shape:
            found[-1].append(row)
        else:
            found.append([row])
    return found


def read_images(path: Path) -> ImageInput:
    """The image input that an artifact's file describes.

    Raises:
        ArtifactError: The file is missing or damaged.
    """
    try:
        return msgspec.json.decode(read_file(path), type=ImageInput)
    except (OSError, msgspec.DecodeError) as error:
        raise ArtifactError(
            f"does not say how images are read: {error}", where=str(path)
        ) from error
