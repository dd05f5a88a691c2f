"""Memory of passes follows what they hold: statistics, variants of the model, rotations."""

from __future__ import annotations

import onnx_ir as ir
import pytest

from optc.passes.calibrating.predictions import memory
from optc.passes.calibrating.predictions.memory import (
    allocating,
    left_hessians,
    left_rows,
    measuring,
    scaling,
    turned,
    turning,
)
from optc.passes.calibrating.predictions.text_shape import TextShape
from optc.passes.kv_cache.balance_keys import BalanceKeys
from optc.passes.prune.structured.prune_depth import PruneDepth
from optc.passes.prune.structured.prune_heads import PruneHeads
from optc.passes.prune.weights.prune_weights import PruneWeights
from optc.passes.quantize.budget.allocate_bits import AllocateBits
from optc.passes.quantize.calibrate import Calibrate
from optc.passes.quantize.propagate.propagate_errors import PropagateErrors
from optc.passes.quantize.rotate.rotate import Rotate
from optc.passes.quantize.smooth.smooth import Smooth
from tests.support.dense_models import FF, HEAD, D, H, dense_model

SHORT = TextShape(1, 16)
SQUARES = D**2 + (H * HEAD) ** 2 + D**2 + FF**2  # QKV, O, gate and up, down


def held_by_variants(variants: int, text: TextShape) -> int:
    """Of a model so small that nothing else counts."""
    model = dense_model(1)
    return allocating(model, SHORT, text, variants) - allocating(model, SHORT, text, 0)


def test_variants_of_the_model_lie_side_by_side_until_they_lie_in_a_file() -> None:
    text = TextShape(64, 512)
    one = 4 * text.tokens * D
    assert held_by_variants(20, text) - held_by_variants(10, text) == 10 * one
    assert held_by_variants(1000, text) == held_by_variants(2000, text)


def test_an_exponent_is_searched_with_the_largest_hessian() -> None:
    model = dense_model(1)
    assert scaling(model, searched=False) == 0
    assert scaling(model, searched=True) == 8 * (SQUARES + D**2) + 20 * FF**2


def test_rotations_are_as_wide_as_the_model() -> None:
    model = dense_model(1)
    assert turning(model) - turned(model) == 32 * D**2
    assert turned(model) == 2 * 4 * 4 * 256 * FF


def test_passes_state_it() -> None:
    model: ir.Model = dense_model(1)
    assert AllocateBits().costs(model).working >= Calibrate(hessians=True).costs(model).working
    assert Smooth(method="awq").costs(model).working > Smooth().costs(model).working
    assert Rotate().costs(model).working > Rotate().costs(model).reading > 0
    assert BalanceKeys().costs(model).working == Calibrate().costs(model).working


def test_what_passes_leave_in_the_store_is_stated() -> None:
    model = dense_model(2)
    hessians, rows = 8 * (2 * SQUARES + D**2), left_rows(model, 1)
    assert left_hessians(model) == hessians
    assert Calibrate().costs(model).left == Smooth().costs(model).left == 0
    for one in (Calibrate(hessians=True), AllocateBits(), Smooth(method="awq")):
        assert one.costs(model).left == hessians
    assert PropagateErrors().costs(model).left == rows
    for pruning in (PruneWeights(), PruneDepth(), PruneHeads()):
        assert pruning.costs(model).left == 4 * rows


def test_what_the_store_keeps_has_a_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "MEMORY_BYTES", 100)
    assert left_hessians(dense_model(1)) == left_rows(dense_model(1), 4) == 100


def test_sub_layers_and_heads_are_compared_as_variants() -> None:
    model = dense_model(2)
    many = 4000  # windows, beside which weights count little
    depth = PruneDepth(windows=1, measured_windows=many)
    variants = measuring(model, TextShape(many, 512), 4)  # two sub-layers of two blocks
    assert depth.costs(model).working == variants
    assert PruneDepth(windows=1, choose="influence").costs(model).working < variants
    heads = PruneHeads(windows=1, measured_windows=many)
    assert heads.costs(model).working > variants  # as many groups of heads, and Hessians
