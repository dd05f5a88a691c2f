"""Decoders whose layers do not attend are refused by what they are, for all types of transformers
that the survey knows."""

from __future__ import annotations

import pytest
from transformers import AutoConfig, PretrainedConfig

from optc.errors import UnsupportedError
from optc.importer.families.survey import read_survey
from optc.importer.text_model.layers import check_layers

FAMILIES = {f.type: f for f in read_survey().families if f.group == "decoder"}
#: Without attention, or with layers beside those that attend.
OTHERS = {
    "minimax": "linear_attention",
    "zaya": "hybrid",
    "recurrent_gemma": "linear_attention",
    "rwkv": "no attention heads",
    "xlstm": "no attention heads",
}


#: Of types whose own defaults attend everywhere.
GIVEN: dict[str, dict[str, object]] = {
    "lfm2": {"num_hidden_layers": 3, "layer_types": ["conv", "full_attention", "conv"]}
}


def default(kind: str) -> PretrainedConfig:
    config = AutoConfig.for_model(kind, **GIVEN.get(kind, {}))
    return config.get_text_config(decoder=True)


@pytest.mark.parametrize("kind", OTHERS)
def test_what_carries_a_state_is_named(kind: str) -> None:
    with pytest.raises(UnsupportedError) as caught:
        check_layers(default(kind), "TheClass")
    assert caught.value.message.startswith(("TheClass has ", "TheClass states "))
    assert OTHERS[kind] in caught.value.message
    assert "'optc families' lists their types" in caught.value.hint


@pytest.mark.parametrize("kind", [f.type for f in FAMILIES.values() if "canonical" in f.stages])
def test_what_optc_takes_is_not_refused(kind: str) -> None:
    check_layers(default(kind), "TheClass")


@pytest.mark.parametrize("kind", ["dots3_note", "dots3_note_text"])
def test_a_number_of_heads_of_each_layer_is_one(kind: str) -> None:
    """Configurations of such types refuse to tell one number."""
    check_layers(default(kind), "TheClass")
