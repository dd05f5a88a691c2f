"""Predicted work of taking out structures: two runs, what goes, and variants that are measured."""

from __future__ import annotations

from dataclasses import replace

import onnx_ir as ir
import pytest

from optc.passes.prune.structured.prune_depth import PruneDepth
from optc.passes.prune.structured.prune_heads import PruneHeads
from optc.passes.prune.structured.prune_width import PruneWidth
from optc.passes.prune.structured.refit import Cut
from optc.passes.prune.structured.work import cutting, measuring
from optc.passes.quantize.predictions.text_shape import TextShape
from optc.passes.quantize.predictions.work import observing
from optc.reference.streams.choice import products_here
from tests.support.dense_models import dense_model

TEXT = TextShape(8, 64)
SIZES = {"folder": "x", "windows": 8, "window_tokens": 64}


def test_more_neurons_that_go_take_longer() -> None:
    works = [
        PruneWidth(target=target, multiple=8, **SIZES).work(dense_model(2))
        for target in ("0.9x", "0.5x")
    ]
    assert works[1].steps > works[0].steps
    assert works[0].float32 == works[1].float32 > 0


def test_sub_layers_are_measured_one_by_one() -> None:
    model = dense_model(2)  # of four sub-layers one goes, then another of three
    one = PruneDepth(target="0.9x", measured_windows=2, **SIZES)
    runs = cutting(model, TEXT, {}, products_here())
    measured = measuring(model, TextShape(2, 64), 4)
    assert measured.float32 > 0
    assert one.work(model) == runs + measured
    assert replace(one, choose="influence").work(model) == runs


def test_heads_are_measured() -> None:
    model = dense_model(2)
    by_kl = PruneHeads(**SIZES)
    fewer = replace(by_kl, measured_windows=1)
    assert by_kl.work(model).float32 > fewer.work(model).float32
    assert by_kl.work(model).float32 > replace(by_kl, refit=False).work(model).float32


def test_where_sub_layers_go_half_is_fitted() -> None:
    model = dense_model(2)
    narrowed = cutting(model, TEXT, {ir.Value(name="w"): Cut(4, 3)}, "float32")
    without = cutting(model, TEXT, {ir.Value(name="w"): Cut(1, 0)}, "float32")
    plain = observing(model, TEXT, hessians=False)
    assert plain.float32 < without.float32 < narrowed.float32
    assert without.float64 == narrowed.float64 / 2


def test_a_variant_is_half_a_run() -> None:
    model = dense_model(2)
    one, two = (measuring(model, TEXT, count) for count in (1, 2))
    assert two.float32 == pytest.approx(2 * one.float32)
