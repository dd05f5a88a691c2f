"""Counts of work against those of what is really multiplied."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from optc.passes.quantize.predictions.text_shape import TextShape
from optc.passes.quantize.predictions.work import observing, propagating, reading, rounding
from optc.passes.quantize.propagate.targets import TOKENS_PER_INPUT
from tests.support.dense_models import FF, HEAD, HKV, D, H, V, dense_model

#: QKV, O, gate and up, down: K and N.
LAYERS = ((D, (H + 2 * HKV) * HEAD), (H * HEAD, D), (D, 2 * FF), (FF, D))
WEIGHTS = sum(k * n for k, n in LAYERS)
TEXT = TextShape(2, 64)
FLOATS = ("float32", "float32")


def test_a_run_of_the_model_multiplies_every_weight_with_every_token() -> None:
    work = observing(dense_model(2), TEXT, hessians=False)
    scores = 2 * TEXT.window_tokens * D
    assert work.float32 == 2 * TEXT.tokens * (WEIGHTS + scores)
    assert (work.bfloat16, work.float64) == (0, 0)


def test_hessians_of_small_inputs_are_whole_products() -> None:
    more, less = (observing(dense_model(2), TEXT, hessians=one).float32 for one in (True, False))
    assert more - less == 2 * TEXT.tokens * sum(k * k for k, _ in LAYERS)


def test_two_runs_are_in_the_type_of_their_products() -> None:
    run = 2 * TEXT.tokens * WEIGHTS
    squares = 2 * TEXT.tokens * sum(k * k for k, _ in LAYERS)
    floats, narrow, bytes_ = (
        propagating(dense_model(2), TEXT, 4, names, gptq=True)
        for names in (FLOATS, ("bfloat16", "bfloat16"), ("bfloat16", "int8"))
    )
    assert (floats.bfloat16, narrow.bfloat16, bytes_.bfloat16) == (0, 2 * run, run)
    scores = 2 * TEXT.tokens * 2 * TEXT.window_tokens * D  # half of those of two runs, as fused
    assert floats.float32 == narrow.float32 + 2 * run + scores
    assert bytes_.int8 == run + squares
    assert narrow.float32 == bytes_.float32 + squares


def test_corrections_are_counted_where_there_is_text_for_them() -> None:
    few = TOKENS_PER_INPUT * D - 1
    works = [
        propagating(dense_model(1), TextShape(1, n), 4, FLOATS, gptq=False) for n in (few, few + 1)
    ]
    assert works[0].float64 == 0
    assert works[1].float64 > 0
    tokens = TOKENS_PER_INPUT * FF  # enough for all layers: W x' of those before a residual
    work = propagating(dense_model(1), TextShape(1, tokens), 4, ("float32", "bfloat16"), gptq=False)
    results = D * H * HEAD + D * FF
    assert work.bfloat16 == tokens * (WEIGHTS + results)
    work = propagating(dense_model(1), TextShape(1, tokens), 4, ("float32", "int8"), gptq=False)
    sums = sum(k * k for k, _ in LAYERS) + 2 * D * D + results  # x xᵀ, and differences by x
    assert work.int8 == tokens * (WEIGHTS + results + sums)


def test_fewer_blocks_are_less_work() -> None:
    half, whole = (
        propagating(dense_model(2), TEXT, 4, FLOATS, gptq=True, blocks=blocks) for blocks in (1, 0)
    )
    assert replace(whole, steps=0) == replace(half + half, steps=0)
    last_norm = 2 * TEXT.tokens * 4 * D  # of two runs; it belongs to the last block
    assert whole.steps == 2 * half.steps + last_norm


def test_what_was_rounded_is_only_packed() -> None:
    model = dense_model(2)
    packed, both = (reading(model, 3, 8, rounded=one).steps for one in (True, False))
    assert both - packed == rounding(2 * WEIGHTS, 3).steps
    assert packed > 2 * WEIGHTS + V * D
    assert rounding(1, 3).steps > rounding(1, 4).steps > rounding(1, 8).steps
    assert np.isfinite(packed)
