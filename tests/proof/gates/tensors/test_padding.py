"""Padding is left out of outputs that have something for each token, and of no others."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from optc.proof.gates.tensors.padding import unpadded

MASK = np.array([[1, 1, 0], [1, 0, 0]])
OUTPUTS = {
    "of_tokens": np.arange(6).reshape(2, 3),
    "of_features": np.arange(12).reshape(2, 3, 2),
    "of_texts": np.arange(2),
    "of_others": np.arange(8).reshape(2, 4),
}


def run(sample: Mapping[str, Any]) -> Mapping[str, Any]:
    return OUTPUTS


def test_tokens_of_padding_are_left_out() -> None:
    found = unpadded(run, "attention_mask")({"attention_mask": MASK})
    assert found["of_tokens"].tolist() == [0, 1, 3]
    assert found["of_features"].tolist() == [[0, 1], [2, 3], [6, 7]]
    assert found["of_texts"] is OUTPUTS["of_texts"]
    assert found["of_others"] is OUTPUTS["of_others"]


def test_without_a_mask_all_stays() -> None:
    assert unpadded(run, "") is run
