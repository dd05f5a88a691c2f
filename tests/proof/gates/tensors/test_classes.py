"""Classes of images beside those of a reference."""

from __future__ import annotations

import numpy as np

from optc.proof.gates.tensors.classes import Classes


def scores(*rows: list[int]) -> dict[str, np.ndarray]:
    return {"logits": np.array(rows, np.float32)}


def test_first_and_among_five() -> None:
    reference = scores([9, 1, 2, 3, 4, 5, 6], [9, 1, 2, 3, 4, 5, 6], [9, 1, 2, 3, 4, 5, 6])
    engine = scores([9, 8, 7, 6, 5, 4, 3], [5, 9, 8, 7, 6, 4, 3], [4, 9, 8, 7, 6, 5, 3])
    classes = Classes()
    classes.add(engine, reference)
    assert classes.values() == {"class_agreement": 1 / 3, "class_top5_agreement": 2 / 3}


def test_without_images_there_is_nothing() -> None:
    assert Classes().values() == {"class_agreement": None, "class_top5_agreement": None}
