"""The decoder inside of a model that takes images, too."""

from __future__ import annotations

from pathlib import Path

import pytest
import transformers

from optc.errors import InputError
from optc.importer.safetensors import StoredTensor
from optc.importer.skeleton import Skeleton
from optc.importer.text_model.part import text_config, text_tensors

SHAPES = {
    "model.embed_tokens.weight": (32, 8),
    "model.layers.0.mlp.weight": (8, 8),
    "lm_head.weight": (32, 8),
}


def checkpoint(*names: str) -> dict[str, StoredTensor]:
    return {
        name: StoredTensor(Path("f"), name, "F32", (9 if "vision" in name else 32, 8), 0)
        for name in names
    }


def test_which_configurations_have_a_text_part() -> None:
    assert text_config(transformers.LlamaConfig()) is None
    text = text_config(transformers.Gemma3Config())
    assert text is not None
    assert text.model_type == "gemma3_text"
    untied = text_config(transformers.Gemma3Config(tie_word_embeddings=False))
    assert untied is not None
    assert (text.tie_word_embeddings, untied.tie_word_embeddings) == (True, False)
    apart = text_config(transformers.MllamaConfig())
    assert apart is not None, "a type of its own, with a class but no entry for it"
    assert apart.model_type == "mllama_text_model"
    assert text_config(transformers.CLIPConfig()) is None, "its text part is no decoder"


def test_a_text_part_that_is_no_configuration_is_named() -> None:
    config = transformers.PretrainedConfig()
    config.text_config = [1]
    with pytest.raises(InputError, match="configuration is a list, not an object"):
        text_config(config)


@pytest.mark.parametrize(
    ("prefix", "head"),
    [
        ("language_model.model.", "language_model.lm_head."),
        ("model.language_model.", "lm_head."),
        ("model.", "lm_head."),
        ("text_model.model.", "text_model.lm_head."),
    ],
)
def test_names_of_the_text_part(prefix: str, head: str) -> None:
    names = (f"{prefix}embed_tokens.weight", f"{prefix}layers.0.mlp.weight", f"{head}weight")
    vision = ("vision_tower.layers.0.mlp.weight", "vision_tower.embed_tokens.weight")
    found = text_tensors(Skeleton(SHAPES, {}, {}), checkpoint(*names, *vision))
    assert {name: tensor.name for name, tensor in found.items()} == dict(
        zip(SHAPES, names, strict=True)
    )


@pytest.mark.parametrize("names", [(), ("a.embed_tokens.weight", "b.embed_tokens.weight")])
def test_which_embedding_is_the_text_s_must_be_clear(names: tuple[str, ...]) -> None:
    with pytest.raises(InputError, match="where is the text part") as caught:
        text_tensors(Skeleton(SHAPES, {}, {}), checkpoint(*names))
    assert (", ".join(names) or "nothing") in caught.value.message
