"""What weights are spent on is told by dataflow, whatever the names and the form of the model."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from optc.compiling.resolving.tensor_kinds import KINDS, tensor_kinds
from tests.support.families import FAMILIES, FUSED, model_after
from tests.support.ir_text import f32, model_of
from tests.support.models import Dense, dense_model

INT4 = f"{FUSED},quantize-weights{{bits=4,group_size=32}}"


def by_kind(found: list[dict[str, Any]]) -> dict[str, tuple[int, int, int]]:
    return {one["kind"]: (one["tensors"], one["bytes"], one["scale_bytes"]) for one in found}


def test_a_dense_form_in_float32() -> None:
    """Two layers of width 32, two KV heads of eight, a feed-forward of 48, 61 tokens."""
    found = by_kind(tensor_kinds(dense_model(Dense())))
    assert found == {
        "embedding": (1, 4 * 61 * 32, 0),
        "attention inputs": (6, 4 * 2 * (32 + 16 + 16) * 32, 0),
        "attention output": (2, 4 * 2 * 32 * 32, 0),
        "feed-forward": (6, 4 * 2 * 3 * 48 * 32, 0),
        "head": (1, 4 * 61 * 32, 0),
        "norms, biases and others": found["norms, biases and others"],
    }


def test_a_tied_embedding_counts_once() -> None:
    found = by_kind(tensor_kinds(model_after(FUSED, Dense(tied=True))))
    assert found["embedding and head"] == (1, 4 * 61 * 32, 0)
    assert not {"embedding", "head"} & set(found)


def test_scales_are_beside_quantized_weights() -> None:
    found = by_kind(tensor_kinds(model_after(INT4, Dense())))
    tensors, size, beside = found["feed-forward"]
    up, down = 2 * 48 * 32, 32 * 48  # 48 is no multiple of 32: the latter has 8 bits (ADR 0003)
    assert (tensors, size - beside) == (4, 2 * (up // 2 + down))
    assert 0 < beside < size - beside


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("spec", [FUSED, INT4])
def test_every_byte_counts_once(family: str, spec: str) -> None:
    model = model_after(spec, FAMILIES[family])
    found = tensor_kinds(model)
    assert [one["kind"] for one in found] == [k for k in KINDS if k in by_kind(found)]
    tensors = (value.const_value for value in model.graph.initializers.values())
    stored = sum(int(tensor.nbytes) for tensor in tensors if tensor is not None)
    shared = 4 * 61 * 32 if FAMILIES[family].tied and spec == FUSED else 0
    assert sum(one["bytes"] for one in found) == stored - shared
    inputs, outputs = (by_kind(found)[f"attention {kind}"][0] for kind in ("inputs", "output"))
    # each attention has as many; recurrences have gates and rates of their own
    assert inputs % outputs == 0 or FAMILIES[family].recurrences


def test_weights_behind_a_dequantization_are_the_weights_of_what_multiplies_by_them() -> None:
    values = np.ones((8, 4), np.int64)
    model = model_of(
        "g (int64[T] tokens, float[T,8] x) => (float[T,4] y)",
        """wide = Cast <to: int = 1> (values)
        w = Mul (wide, scales)
        y = MatMul (x, w)""",
        {"values": values, "scales": f32(4)},
    )
    assert by_kind(tensor_kinds(model)) == {"head": (1, values.nbytes + 4 * 4, 4 * 4)}
