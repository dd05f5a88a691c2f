"""Which engines take how long to compile."""

from __future__ import annotations

from dataclasses import replace

from optc.backend import BuildOptions
from optc.backends.tvm.lowering.compile_times import compile_seconds
from optc.backends.tvm.lowering.lower_model import lower_model
from optc.target import parse_target
from tests.backends.tvm.engine_driver import FUSED_KV4, INT4_TWO_LEVEL, INT8, SHAPE
from tests.support.families import model_after
from tests.support.models import Dense


def seconds(pipeline: str, shape: Dense = SHAPE) -> float:
    target = parse_target("x86-64-v4-vnni")
    model = model_after(pipeline, shape)
    return compile_seconds(lower_model(model, target, BuildOptions(max_context=64)).program)


def test_few_bits_take_longest_and_three_longer_than_four() -> None:
    four = seconds(INT4_TWO_LEVEL)
    three = seconds(INT4_TWO_LEVEL.replace("bits=4", "bits=3"))
    assert seconds(INT8) < four < three


def test_more_layers_have_the_same_kernels() -> None:
    assert seconds(INT8, replace(SHAPE, windows=(0, 24, 0, 24))) == seconds(INT8)


def test_attention_to_latest_tokens_beside_takes_longer() -> None:
    wide = replace(SHAPE, head_dim=32, rotary_dim=32)
    assert seconds(FUSED_KV4, wide) > seconds(FUSED_KV4.replace(",recent=20", ""), wide)
