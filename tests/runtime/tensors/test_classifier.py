"""`Classifier`: arrays in, named classes out, in batches that its model takes."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

from optc.errors import ArtifactError, RequestError
from optc.runtime.executable.tensors import Array
from optc.runtime.executable.tensors_interface import DimRange, TensorsInterface, TensorSpec
from optc.runtime.tensors.classifier import Classifier, read_images, softmax
from optc.runtime.tensors.images import ImageInput

#: Three images whose means of red, green and blue are these.
MEANS = np.array([[9, 3, 6], [0, 8, 4], [2, 5, 7]], np.uint8)


def image(means: np.ndarray, size: int = 2) -> np.ndarray:
    return np.broadcast_to(means, (size, size, 3)).copy()


IMAGES = [image(one) for one in MEANS]


class Means:
    """Its logits are the means of the channels."""

    batch_invariant = True

    def __init__(self) -> None:
        self.batches: list[int] = []

    def run(self, inputs: Mapping[str, Array]) -> dict[str, Array]:
        self.batches.append(len(inputs["x"]))
        return {"y": inputs["x"].mean(axis=(2, 3))}

    def close(self) -> None:
        pass


ANY = DimRange(1, 64)


def classifier(
    batch: int | DimRange = ANY, size: int | str = 2, **how: Any
) -> tuple[Classifier, Means]:
    rows: int | str = batch if isinstance(batch, int) else "batch"
    symbols = {} if isinstance(batch, int) else {"batch": batch}
    symbols |= {} if isinstance(size, int) else {size: DimRange(1, 64)}
    interface = TensorsInterface(
        inputs=(TensorSpec("x", "float32", (rows, 3, size, size)),),
        outputs=(TensorSpec("y", "float32", (rows, 3)),),
        symbols=symbols,
    )
    runs = Means()
    return Classifier(runs, interface, {"name": "toy"}, ImageInput("x", **how)), runs


def test_the_likeliest_come_first_with_names_and_chances() -> None:
    found = classifier(labels=("red", "green", "blue"))[0].classify(IMAGES)
    assert [[one.label for one in row] for row in found] == [
        ["red", "blue", "green"],
        ["green", "blue", "red"],
        ["blue", "green", "red"],
    ]
    for row, means in zip(found, MEANS, strict=True):
        assert [one.index for one in row] == np.argsort(-means.astype(int)).tolist()
        raised = np.exp(means.astype(float))
        assert [one.score for one in row] == pytest.approx(sorted(raised / raised.sum())[::-1])


def test_probabilities_stay_as_they_are() -> None:
    given = classifier(scores="probabilities", scale=0.125)[0].classify(IMAGES[:1])
    assert [one.score for one in given[0]] == [9 / 8, 6 / 8, 3 / 8]


def test_classes_without_a_name_are_called_by_their_number() -> None:
    found = classifier(labels=("red", "green"))[0].classify(IMAGES[:1])
    assert [one.label for one in found[0]] == ["red", "2", "green"]
    assert [one.label for one in classifier()[0].classify(IMAGES[:1])[0]] == ["0", "2", "1"]


def test_so_many_classes_of_each() -> None:
    found = classifier()[0].classify(IMAGES, top=1)
    assert [[one.index for one in row] for row in found] == [[0], [1], [2]]
    assert [len(row) for row in classifier()[0].classify(IMAGES, top=2)] == [2, 2, 2]


def test_five_classes_are_given_if_nothing_is_said() -> None:
    ten = np.arange(10.0, dtype=np.float32)

    class Ten(Means):
        def run(self, inputs: Mapping[str, Array]) -> dict[str, Array]:
            return {"y": np.stack([ten] * len(inputs["x"]))}

    one, _ = classifier()
    one._executable = Ten()
    assert [scored.index for scored in one.classify(IMAGES[:1])[0]] == [9, 8, 7, 6, 5]


@pytest.mark.parametrize(
    ("batch", "batch_size", "batches"),
    [
        (ANY, 16, [3]),
        (ANY, 2, [2, 1]),
        (DimRange(1, 2), 16, [2, 1]),
        (ANY, 1, [1, 1, 1]),
        (DimRange(2, 64), 2, [2, 2]),  # the last image stands there twice
        (DimRange(2, 64), 1, [2, 2]),
        (2, 16, [2, 2]),
        (4, 1, [4]),
    ],
)
def test_batches_are_those_that_the_model_takes(
    batch: int | DimRange, batch_size: int, batches: list[int]
) -> None:
    one, runs = classifier(batch)
    found = one.classify(IMAGES, batch_size=batch_size)
    assert runs.batches == batches
    assert [row[0].index for row in found] == [0, 1, 2]


def test_sixteen_images_of_a_call_if_nothing_is_said() -> None:
    one, runs = classifier()
    assert len(one.classify(IMAGES * 6)) == 18
    assert runs.batches == [16, 2]


def test_images_of_other_shapes_run_apart() -> None:
    one, runs = classifier(size="edge")
    some = [image(MEANS[0]), image(MEANS[1]), image(MEANS[2], 5), image(MEANS[0], 5)]
    assert [row[0].index for row in one.classify(some)] == [0, 1, 2, 0]
    assert runs.batches == [2, 2]
    assert [row[0].index for row in one.classify(some[1:3] + some[:1])] == [1, 2, 0]
    assert runs.batches[2:] == [1, 1, 1], "each keeps its place"


def test_nothing_is_nothing() -> None:
    one, runs = classifier()
    assert one.classify([]) == []
    assert runs.batches == []


@pytest.mark.parametrize("name", ["top", "batch_size"])
def test_numbers_are_positive(name: str) -> None:
    numbers: dict[str, Any] = {name: 0}
    with pytest.raises(RequestError, match=f"{name}: is 0"):
        classifier()[0].classify(IMAGES, **numbers)


@pytest.mark.parametrize("images", ["0.png", b"0.png", 7])
def test_what_is_no_list_is_refused(images: Any) -> None:
    with pytest.raises(RequestError, match="images: are no list of images"):
        classifier()[0].classify(images)


def test_large_logits_have_chances() -> None:
    assert softmax(np.array([1000, 1000, -1000], np.float32)).tolist() == [0.5, 0.5, 0]


def test_the_file_says_how_images_are_read(tmp_path: Path) -> None:
    known = ImageInput("x", size=(4, 6), labels=("cat", "dog"))
    (tmp_path / "input.json").write_bytes(msgspec.json.encode(known))
    assert read_images(tmp_path / "input.json") == known
    (tmp_path / "damaged.json").write_bytes(b'{"input": 7}')
    for name in ("damaged.json", "absent.json"):
        with pytest.raises(ArtifactError, match=f"{name}: does not say how images are read"):
            read_images(tmp_path / name)
