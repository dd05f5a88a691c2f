"""Settings of a wrapper's config.json, with transformers' GenerationConfig as the oracle."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
from transformers import GenerationConfig

from optc.importer.text_model.stated import decoder_part, frame, stated

KEYS = ("bos_token_id", "eos_token_id", "pad_token_id", "temperature", "repetition_penalty")
#: Not there, null, or a value; above and below.
VALUES: dict[str, list[dict[str, Any]]] = {
    key: [{}, {key: None}, {key: value}, {key: [value, 9] if "eos" in key else value + 0.5}]
    for key, value in zip(KEYS, (3, 1, 2, 0.5, 1.5), strict=True)
}


@pytest.mark.parametrize("part", ["text_config", "decoder", "generator"])
@pytest.mark.parametrize("key", KEYS)
def test_transformers_reads_the_same(key: str, part: str) -> None:
    for above, below in itertools.product(VALUES[key][:3], VALUES[key]):
        config = {"model_type": "wrapper", **above, part: {"vocab_size": 9, **below}}
        theirs = getattr(GenerationConfig.from_model_config(dict(config)), key)
        assert stated(config).get(key) == theirs, config


def test_a_part_that_is_none() -> None:
    config = {"vocab_size": 3, "text_config": 7, "bos_token_id": 2, "eos_token_id": [4, 5]}
    assert decoder_part(config) is config
    assert frame(config) == (2, 4)
    assert frame({"bos_token_id": [], "eos_token_id": "x"}) == (None, None)


def test_a_frame_of_a_wrapper() -> None:
    assert frame({"text_config": {"bos_token_id": 7, "eos_token_id": [1, 77]}}) == (7, 1)
