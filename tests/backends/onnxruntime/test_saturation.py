"""Engines whose products of bytes saturate on CPUs without VNNI say so where they are loaded."""

from __future__ import annotations

import logging
from pathlib import Path

import numpy as np
import pytest
import torch

import optc
from optc.backends.onnxruntime import tensors
from optc.backends.onnxruntime.saturation import saturates
from optc.compiling.recipes.recipe import load_recipe
from optc.system.hardware import target
from tests.support.ir_text import model_of

SIGNATURE = "g (uint8[2,4] x, float[2,4] f) => (int32[2,3] y)"
PRODUCT = "y = MatMulInteger (x, w)"
QDQ = """
    a = DequantizeLinear (x, scale)
    b = DequantizeLinear (w, scale)
    z = MatMul (a, b)
    y = Cast <to: int = 6> (z)"""


@pytest.mark.parametrize("nodes", [PRODUCT, QDQ])
@pytest.mark.parametrize(
    ("largest", "beyond"), [(64, False), (-64, False), (65, True), (-128, True)]
)
def test_weights_of_more_than_7_bits_saturate(nodes: str, largest: int, beyond: bool) -> None:
    weights = np.zeros((4, 3), np.int8)
    weights[2, 1] = largest
    model = model_of(SIGNATURE, nodes, {"w": weights, "scale": np.array(0.5, np.float32)})
    assert saturates(model) == beyond


def test_float_products_do_not() -> None:
    nodes = "b = DequantizeLinear (w, scale) z = MatMul (f, b) y = Cast <to: int = 6> (z)"
    weights = {"w": np.full((4, 3), 127, np.int8), "scale": np.array(0.5, np.float32)}
    assert not saturates(model_of(SIGNATURE, nodes, weights))


@pytest.mark.parametrize(
    ("flags", "no"),
    [("avx2", True), ("avx2 avx512f avx512bw", True), ("avx512_vnni", False), ("avx_vnni", False)],
)
def test_cpus_with_vnni_add_exactly(flags: str, no: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(target, "_x86_flags", lambda: frozenset(flags.split()))
    assert target.saturates_pairs() == no


def test_recipes_have_7_bits_for_cpus_without_vnni() -> None:
    for name in ("products-int8", "vision-int8"):
        recipe = load_recipe(name)
        bits = [
            p.bits for p in recipe.for_kinds({"cpu", "avx2"}).pipeline.passes if hasattr(p, "bits")
        ]
        assert bits
        assert set(bits) == {7}
        own = recipe.for_kinds({"avx2"}, ["quantize-products.bits"]).pipeline.passes
        assert 8 in [p.bits for p in own if hasattr(p, "bits")]
        assert {
            p.bits for p in recipe.for_kinds({"cpu"}).pipeline.passes if hasattr(p, "bits")
        } == {8}


@pytest.mark.parametrize(("name", "bits"), [("native", 8), ("x86-64-v3", 7)])
def test_a_load_warns_where_results_are_others(
    name: str, bits: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:  # fmt: skip
    chosen = [f"quantize-products.bits={bits}"] if bits == 8 else []
    module = torch.nn.Linear(32, 16)
    path = tmp_path / "a"
    optc.compile(module, "products-int8", path, args=(torch.randn(4, 32),), target=name,
                 set=chosen, no_gates=True)  # fmt: skip
    for without in (True, False):
        monkeypatch.setattr(tensors, "saturates_pairs", lambda without=without: without)
        caplog.clear()
        with caplog.at_level(logging.WARNING), optc.load_tensors(path):
            pass
        said = [r.message for r in caplog.records if "lacks VNNI" in r.message]
        assert len(said) == (without and bits == 8)
