"""Settings of generation: each of transformers' keys is followed, named, or harmless."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import onnx_ir as ir
import pytest
from transformers import GenerationConfig

from optc.compiling.stages.generation import (
    FOLLOWED,
    OTHERS,
    GenerationSettings,
    generation_settings,
)
from optc.importer.imported import ImportedModel

#: Keys that change no text: how it is computed or returned, ids that are read elsewhere, drafts,
#: and those of encoders.
HARMLESS = {
    *("assistant_confidence_threshold", "assistant_ensemble_weight", "assistant_lookbehind"),
    *("bos_token_id", "cache_config", "cache_implementation", "compile_config"),
    *("continuous_batching_config", "decoder_start_token_id", "disable_compile", "eos_token_id"),
    *("is_assistant", "low_memory", "max_cache_len", "max_matching_ngram_size"),
    *("num_assistant_tokens", "num_assistant_tokens_schedule", "output_attentions"),
    *("output_hidden_states", "output_logits", "output_scores", "pad_token_id"),
    *("prefill_chunk_size", "prompt_lookup_num_tokens", "remove_invalid_values"),
    *("renormalize_logits", "return_dict_in_generate", "speculation_type", "target_lookbehind"),
    *("transformers_version", "use_cache", "use_mtp", "_from_model_config"),
}
VALUES: dict[str, Any] = {
    "temperature": 0.6,
    "top_k": 20,
    "top_p": 0.9,
    "min_p": 0.1,
    "typical_p": 0.5,
    "repetition_penalty": 1.5,
    "length_penalty": 2.0,
    "early_stopping": True,
    "max_new_tokens": 77,
    "stop_strings": ["END", "\n\n"],
}


def settings(folder: Path, given: dict[str, Any] | None, **config: Any) -> GenerationSettings:
    file = folder / "generation_config.json"
    if given is not None:
        file.write_text(json.dumps(given))
    imported = ImportedModel(
        model=ir.Model(ir.Graph([], [], nodes=[]), ir_version=10),
        config=config,
        family="llama",
        name="tiny",
        folder=folder,
        source_digest="",
        tokenizer_files=[] if given is None else [file],
        warnings=[],
        max_context=64,
    )
    return generation_settings(imported)


def test_every_key_of_transformers_is_known() -> None:
    known = GenerationConfig().to_dict().keys()
    assert known <= {*FOLLOWED, *OTHERS, *HARMLESS, "do_sample", "max_length"}
    assert not HARMLESS & (FOLLOWED.keys() | OTHERS.keys())
    assert FOLLOWED.keys() == VALUES.keys()


@pytest.mark.parametrize("key", FOLLOWED)
def test_a_key_is_followed(tmp_path: Path, key: str) -> None:
    assert settings(tmp_path, {key: VALUES[key]}) == ({FOLLOWED[key]: VALUES[key]}, ())
    for neutral in (None, getattr(GenerationConfig(), key)):
        assert settings(tmp_path, {key: neutral}) == ({}, ())
    for wrong in ([[]], -300, [3]):
        told = f"settings of generation_config.json are not followed: {key}={wrong!r}"
        assert settings(tmp_path, {key: wrong}) == ({}, (told,))


@pytest.mark.parametrize("key", OTHERS)
def test_a_key_that_cannot_be_followed_is_named(tmp_path: Path, key: str) -> None:
    told = (f"settings of generation_config.json are not followed: {key}=[[7]]",)
    assert settings(tmp_path, {key: [[7]]}) == ({}, told)
    for neutral in (None, *OTHERS[key], GenerationConfig._get_default_generation_params().get(key)):
        assert settings(tmp_path, {key: neutral}) == ({}, ())


def test_all_that_is_left_is_one_warning(tmp_path: Path) -> None:
    given = {"num_beams": 4, "no_repeat_ngram_size": 3, "top_p": 7, "top_k": 5, "eos_token_id": 1}
    assert settings(tmp_path, given) == (
        {"top_k": 5},
        (
            "settings of generation_config.json are not followed: no_repeat_ngram_size=3, "
            "num_beams=4, top_p=7",
        ),
    )


def test_without_sampling_it_is_greedy(tmp_path: Path) -> None:
    assert settings(tmp_path, {"do_sample": False, "temperature": 0.6}).defaults == {
        "temperature": 0.0
    }
    assert settings(tmp_path, {"do_sample": True}).defaults == {}


@pytest.mark.parametrize(("length", "named"), [(20, False), (63, True), (64, False), (None, False)])
def test_a_length_that_the_context_holds_is_named(
    tmp_path: Path, length: int | None, named: bool
) -> None:
    assert bool(settings(tmp_path, {"max_length": length}).warnings) == named


def test_config_json_holds_them_where_there_is_no_file(tmp_path: Path) -> None:
    below = {"text_config": {"repetition_penalty": 1.2, "num_beams": 3, "top_k": 2}, "min_p": 0.1}
    assert settings(tmp_path, None, **below) == (
        {"repetition_penalty": 1.2, "min_p": 0.1},
        ("settings of config.json are not followed: num_beams=3",),
    )
    assert settings(tmp_path, {}, **below) == ({}, ())
