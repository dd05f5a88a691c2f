"""Decoders described without weights, and those that no checkpoint could fill."""

from __future__ import annotations

import pytest
import torch
import transformers
from transformers import PretrainedConfig

from benchmarks.families.tiny import HIDDEN, tiny_config
from optc.errors import InputError, UnsupportedError
from optc.importer import skeleton
from optc.importer.skeleton import attention_of, decoder_class, read_skeleton
from tests.importer.decoders import config_of


def read(tensors: int = 100, **changes: object) -> skeleton.Skeleton:
    config: PretrainedConfig = config_of("Llama", **changes)
    return read_skeleton(config, tensors, allow_remote_code=False)


def test_parameters_ties_and_buffers() -> None:
    found = read(tie_word_embeddings=True)
    assert found.shapes["model.norm.weight"] == (48,)
    assert found.tied == {"lm_head.weight": "model.embed_tokens.weight"}
    assert [name for name in found.buffers if name.endswith("inv_freq")]


@pytest.mark.parametrize(
    ("kind", "implementation"),
    [("Llama", "optc"), ("StableLm", "optc"), ("Falcon", "sdpa"), ("Mpt", "eager")],
)
def test_attention_is_captured_where_the_class_lets_it_be_chosen(
    kind: str, implementation: str
) -> None:
    assert attention_of(config_of(kind)) == implementation


def test_the_class_of_a_part_is_the_one_that_is_made_of_it() -> None:
    assert decoder_class(transformers.LlamaConfig()) is transformers.LlamaForCausalLM
    part = transformers.MllamaConfig().text_config
    assert decoder_class(part) is transformers.MllamaForCausalLM
    assert attention_of(part) == "optc"
    assert decoder_class(transformers.CLIPTextConfig()) is None
    assert decoder_class(PretrainedConfig()) is None


def test_buffers_are_those_of_the_model_that_holds_them() -> None:
    """Gemma 3n's text model reads its own sizes where it computes them, not the whole's."""
    found = skeleton.read_skeleton(tiny_config("gemma3n_text"), 500, allow_remote_code=False)
    assert found.buffers["model.per_layer_projection_scale"] == HIDDEN**-0.5


def test_code_of_a_model_folder_is_asked_for_captured_attention() -> None:
    assert attention_of(PretrainedConfig()) == "optc"


def test_building_stops_where_the_checkpoint_could_not_follow(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    made = []
    monkeypatch.setattr(skeleton, "_SLACK", 10)
    register = torch.nn.Module.register_parameter

    def counted(self: torch.nn.Module, name: str, parameter: torch.nn.Parameter | None) -> None:
        made.append(name)
        register(self, name, parameter)

    monkeypatch.setattr(torch.nn.Module, "register_parameter", counted)
    with pytest.raises(InputError, match="calls for more than 14 parameters"):
        read(tensors=2, num_hidden_layers=500)
    assert len(made) < 50
    torch.nn.Linear(2, 2)  # only decoders are counted, and only while they are built


def test_tables_that_take_all_memory_are_not_computed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(skeleton, "_BUFFER_ELEMENTS", 1)
    with pytest.raises(UnsupportedError, match="a table of shape") as caught:
        read()
    assert "inv_freq" in caught.value.where
