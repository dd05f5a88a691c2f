"""Plain folders: transformers loads them, without a tensor too many or too few, and computes the
same logits. Each model has something that the importer or a pass changes in a weight."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers
from safetensors.torch import load_file, save_file

from optc import registry
from optc.compiling.export.export import export_artifact
from optc.errors import UnsupportedError
from optc.importer.import_model import import_model
from tests.compiling.export.engines import (
    PASSES,
    VOCABULARY,
    GivingBackend,
    weights_of,
    write_giving,
)
from tests.importer.decoders import build, config_of, error, reference, save, tokens
from tests.support.pipelines import pipeline_of

FUSED = PASSES.removesuffix(",quantize-weights")
#: Options of configs by class, and what is special.
MODELS: dict[str, tuple[str, dict[str, Any]]] = {
    "merged rows and biases": ("Qwen2", {"tie_word_embeddings": True}),
    "weights by columns": ("GPT2", {"n_embd": 48, "n_head": 4, "n_layer": 1}),
    "heads side by side": ("Bloom", {"n_head": 4, "n_layer": 1}),
    "a part of each head rotated": ("GPTNeoX", {"rotary_pct": 0.25}),
    "norms with one added": ("Gemma2", {"head_dim": 12}),
    "positions behind others": ("OPT", {"word_embed_proj_dim": 48, "ffn_dim": 80}),
    "experts": ("Mixtral", {"num_local_experts": 4, "num_experts_per_tok": 2}),
    "swapped experts with biases": (
        "GptOss",
        {"num_local_experts": 4, "num_experts_per_tok": 2, "head_dim": 12, "sliding_window": 8,
         "layer_types": ["full_attention"]},
    ),
    "biases of a router that are buffers": (
        "Glm4Moe",
        {"n_routed_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 32, "n_group": 2,
         "topk_group": 1, "first_k_dense_replace": 0, "n_shared_experts": 1, "head_dim": 12},
    ),
}  # fmt: skip


def exported(
    source: Path, tmp_path: Path, patch: pytest.MonkeyPatch, passes: str = FUSED
) -> transformers.PreTrainedModel:
    """The model of ``source``, imported, fused, exported, and loaded by transformers."""
    imported = import_model(source)
    pipeline_of(passes).run(imported.model)
    backend = GivingBackend(weights_of(imported.model))
    patch.setattr(registry, "backend", {"toy": backend}.__getitem__)
    artifact = write_giving(tmp_path / "artifact", imported.config, passes)
    export_artifact(artifact, "hf", tmp_path / "out")
    model, notes = transformers.AutoModelForCausalLM.from_pretrained(
        tmp_path / "out", attn_implementation="eager", output_loading_info=True
    )
    assert not [name for kind in notes.values() for name in kind], notes
    return model.eval()


@pytest.mark.parametrize("name", MODELS)
def test_transformers_loads_the_same_model(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kind, options = MODELS[name]
    model = build(config_of(kind, **options))
    found = exported(save(model, tmp_path / "source"), tmp_path, monkeypatch)
    assert found.dtype == torch.float32
    assert error(reference(found, tokens()), reference(model, tokens())) < 1e-6


def test_the_text_part_of_a_wrapper(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = config_of("Gemma3Text", head_dim=12, sliding_window=8)
    vision = {"hidden_size": 32, "intermediate_size": 32, "num_hidden_layers": 1}
    vision |= {"num_attention_heads": 2, "image_size": 28, "patch_size": 14}
    config = transformers.Gemma3Config(text_config=text.to_dict(), vision_config=vision)
    whole = transformers.AutoModelForImageTextToText.from_config(config).eval()
    found = exported(save(whole, tmp_path / "source"), tmp_path, monkeypatch)
    assert type(found).__name__ == "Gemma3ForCausalLM"
    assert error(reference(found, tokens()), reference(whole, tokens())) < 1e-6


def test_a_head_of_its_own_where_the_config_ties_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = build(config_of("Llama", tie_word_embeddings=True))
    file = save(model, tmp_path / "source") / "model.safetensors"
    head = torch.randn(97, 48)
    save_file({**load_file(file), "lm_head.weight": head}, file)
    found = exported(tmp_path / "source", tmp_path, monkeypatch)
    untied = build(config_of("Llama", tie_word_embeddings=False))
    untied.load_state_dict({**model.state_dict(), "lm_head.weight": head})
    assert error(reference(found, tokens()), reference(untied, tokens())) < 1e-6


def test_integers_become_the_floats_that_they_stand_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = build(config_of("Llama", hidden_size=64, intermediate_size=96))
    source = save(model, tmp_path / "source")
    found = exported(source, tmp_path, monkeypatch, f"{PASSES}{{bits=8}}")
    imported = import_model(source)
    pipeline_of(f"{PASSES}{{bits=8}}").run(imported.model)
    whole = weights_of(imported.model)["model.layers.0.mlp.down_proj.weight.quantized"]
    wanted = whole.rows((64, 96)).floats(0, 64)  # type: ignore[union-attr]
    own = found.state_dict()["model.layers.0.mlp.down_proj.weight"].numpy()
    np.testing.assert_array_equal(own, wanted)


def test_bfloat16_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model = build(config_of("Llama"))
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(parameter.to(torch.bfloat16))
    source = save(copy.deepcopy(model), tmp_path / "source")
    found = exported(source, tmp_path, monkeypatch, f"{FUSED},cast-weights{{dtype=bfloat16}}")
    assert found.dtype == torch.bfloat16
    assert error(reference(found.float(), tokens()), reference(model, tokens())) < 1e-6


def test_what_was_computed_from_parameters_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = build(config_of("Apertus"))
    source = save(model, tmp_path / "source")
    with pytest.raises(UnsupportedError, match=r"act_fn\.alpha_p.*no weights for 2 parameters"):
        exported(source, tmp_path, monkeypatch)
    assert not (tmp_path / "out").exists()


def test_the_tokenizer_comes_with_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model = build(config_of("Llama", vocab_size=VOCABULARY))
    exported(save(model, tmp_path / "source"), tmp_path, monkeypatch)
    found = transformers.AutoTokenizer.from_pretrained(tmp_path / "out")
    text = found.decode(found.encode("def f(x)"))
    assert "def f(x)" in text
    assert json.loads((tmp_path / "out/config.json").read_text())["dtype"] == "float32"
