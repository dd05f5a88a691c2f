"""Rotary scalings lengthen the context, by whatever type and however a configuration says it."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
import transformers

from optc.importer.text_model.context import read_context
from optc.importer.text_model.rope import lengthened

LONG = {"short_factor": [1.0] * 8, "long_factor": [2.0] * 8}
LLAMA3 = {"low_freq_factor": 1.0, "high_freq_factor": 4.0}


@pytest.mark.parametrize(
    ("stated", "rope", "tokens"),
    [
        (64, {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 64}, 256),
        (256, {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 64}, 256),
        (64, {"rope_type": "yarn", "factor": 4}, 256),
        (64, {"type": "yarn", "factor": 2.5}, 160),
        (64, {"rope_type": "linear", "factor": 8.0}, 512),
        (64, {"rope_type": "llama3", "factor": 8.0, **LLAMA3}, 512),
        (
            131072,
            {"rope_type": "llama3", "factor": 32, "original_max_position_embeddings": 8192}
            | LLAMA3,
            131072,
        ),
        (64, {"rope_type": "longrope", "factor": 2.0, **LONG}, 128),
        (128, {"rope_type": "longrope", "original_max_position_embeddings": 64, **LONG}, 128),
        (64, {"rope_type": "dynamic", "factor": 4.0}, 64),
        (64, {"rope_type": "default"}, 64),
        (64, None, 64),
    ],
)
def test_the_context_behind_a_scaling(
    stated: int, rope: dict[str, Any] | None, tokens: int
) -> None:
    config = transformers.LlamaConfig(
        max_position_embeddings=stated,
        hidden_size=64,
        num_attention_heads=4,
        rope_parameters=None if rope is None else dict(rope),
    )
    assert read_context(config, Path("model")) == tokens
    assert read_context(config, Path("model"), scaled=False) == stated
    assert lengthened(stated, rope) == tokens


def test_layers_that_differ_state_the_length_behind_it() -> None:
    nested = {"full_attention": {"rope_type": "linear", "factor": 8.0}, "sliding_attention": {}}
    assert lengthened(64, nested) == 64


def test_the_original_length_may_stand_beside() -> None:
    assert lengthened(64, {"rope_type": "yarn", "factor": 4.0}, 32) == 128
    assert lengthened(64, {"rope_type": "longrope", "factor": 4.0}, 32) == 64


@pytest.mark.parametrize("kind", [None, 3, ["yarn"], {"yarn": 1}, True])
def test_types_that_are_none_lengthen_nothing(kind: object) -> None:
    assert lengthened(64, {"rope_type": kind, "factor": 4.0}) == 64


@pytest.mark.parametrize("factor", [None, "4", True, math.nan, math.inf, -2.0, 0.5])
def test_factors_that_lengthen_nothing(factor: object) -> None:
    assert lengthened(64, {"rope_type": "yarn", "factor": factor}) == 64
    assert lengthened(64, {"rope_type": "yarn", "factor": 1e300}) == 64 << 16
    damaged = {"rope_type": "yarn", "factor": 2, "original_max_position_embeddings": "x"}
    assert lengthened(64, damaged) == 64
