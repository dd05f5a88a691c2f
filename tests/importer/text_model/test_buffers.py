"""Buffers that lie in checkpoints, and weights of one number."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx_ir as ir
import pytest
import torch
from safetensors.torch import save_file

from optc.errors import InputError
from optc.importer.safetensors import StoredTensor, read_header
from optc.importer.skeleton import Skeleton
from optc.importer.text_model.buffers import make_scalars_constant, with_stored_buffers
from tests.passes.canonicalize.texts import exported

NAN = np.float32(np.nan)
VALUES = {"beta": torch.tensor(0.5, dtype=torch.bfloat16), "scale": torch.tensor([2.0, 3.0])}


@pytest.fixture
def stored(tmp_path: Path) -> dict[str, StoredTensor]:
    save_file(VALUES, tmp_path / "model.safetensors")
    return read_header(tmp_path / "model.safetensors")


def skeleton(**buffers: np.ndarray) -> Skeleton:
    return Skeleton({}, {}, {**buffers, "inv_freq": np.ones(4, np.float32)}, frozenset(buffers))


def test_buffers_come_from_the_checkpoint(stored: dict[str, StoredTensor]) -> None:
    known = skeleton(beta=np.array(NAN), scale=np.zeros(2, np.float32), other=np.ones(3))
    found = with_stored_buffers(known, stored).buffers
    assert found["beta"].shape == ()
    assert float(found["beta"]) == 0.5
    assert found["scale"].tolist() == [2.0, 3.0], "before what the class starts with"
    assert found["other"].tolist() == [1, 1, 1], "which stays where the checkpoint has nothing"
    assert found["inv_freq"].tolist() == [1, 1, 1, 1]


@pytest.mark.parametrize(
    ("buffers", "message"),
    [
        ({"eps": np.array(NAN)}, "lacks this buffer"),
        ({"scale": np.zeros(3, np.float32)}, r"shape \[2\], the model \[3\]"),
    ],
)
def test_what_does_not_fit_is_named(
    stored: dict[str, StoredTensor], buffers: dict[str, np.ndarray], message: str
) -> None:
    with pytest.raises(InputError, match=message) as caught:
        with_stored_buffers(skeleton(**buffers), stored)
    assert next(iter(buffers)) in caught.value.where


def test_only_weights_of_one_number_become_constants() -> None:
    weights = {"one": np.ones(1, np.float32), "two": np.ones(2, np.float32)}
    nodes = "a = Mul (x, one) y = Mul (a, two)"
    model = exported("(float[B,2] x) => (float[B,2] y)", nodes, weights)
    make_scalars_constant(model)
    kinds = {n: type(v.const_value) for n, v in model.graph.initializers.items()}
    assert issubclass(kinds["one"], ir.Tensor)
    assert not issubclass(kinds["two"], ir.Tensor)
