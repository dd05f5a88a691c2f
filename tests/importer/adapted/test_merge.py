"""Merging, with PEFT itself as the oracle: its options, its initializations, tied models."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import gguf
import numpy as np
import peft
import pytest
import torch
import transformers
from safetensors.torch import load_file, save_file

from optc.errors import InputError, UnsupportedError
from optc.importer.checkpoint import checkpoint_files, read_tensors
from optc.importer.config import read_config
from optc.importer.hugging_face import _match_untied, build_config
from optc.importer.import_model import import_model
from optc.importer.model_folder import model_folder
from optc.importer.text_model.part import text_config
from optc.passes.canonicalize import Canonicalize
from tests.importer.adapted.adapters import Model, gpt2, llama, more_tokens, trained
from tests.importer.decoders import build, config_of, error, reference, run, save, tokens
from tests.support.checkpoints.gguf_files import of_kind, write_llama


class Case(NamedTuple):
    """A base, options of its adapter, and whether PEFT merges it right."""

    base: Callable[[], Model]
    options: dict[str, Any]
    change: Callable[[Model], None] | None = None
    merges: bool = True


def tied() -> Model:
    return llama(tie_word_embeddings=True)


def with_biases() -> Model:
    return llama(attention_bias=True)


Q = {"target_modules": ["q_proj"]}
Q_AND_TABLE = {"target_modules": ["q_proj", "embed_tokens"]}
CASES = {
    "plain": Case(llama, {"target_modules": "all-linear"}),
    "rank-stabilized": Case(llama, {**Q, "use_rslora": True, "lora_alpha": 3}),
    "patterns": Case(
        llama,
        {
            "target_modules": ["q_proj", "o_proj"],
            "rank_pattern": {"layers.1.self_attn.q_proj": 2},
            "alpha_pattern": {"o_proj": 30},
        },
    ),
    "some layers": Case(llama, {**Q, "layers_to_transform": [1]}),
    "DoRA": Case(llama, {**Q_AND_TABLE, "use_dora": True}),
    "turned": Case(gpt2, {"target_modules": ["c_attn", "c_fc", "c_proj"], "fan_in_fan_out": True}),
    "turned DoRA": Case(gpt2, {"target_modules": ["c_attn", "c_fc"], "use_dora": True}),
    "biases": Case(with_biases, {**Q, "bias": "all"}),
    "biases of LoRA": Case(gpt2, {"target_modules": ["c_attn"], "bias": "lora_only"}),
    "bias behind B": Case(with_biases, {**Q, "lora_bias": True}),
    "whole modules": Case(llama, {**Q, "modules_to_save": ["lm_head", "mlp", "norm"]}),
    "embedding": Case(llama, {"target_modules": ["embed_tokens", "lm_head"]}),
    "tokens": Case(llama, {**Q, "trainable_token_indices": [5, 11, 4]}),
    "more tokens": Case(llama, {**Q, "modules_to_save": ["embed_tokens", "lm_head"]}, more_tokens),
    "more tokens, tied": Case(tied, Q, more_tokens),
    "tokens, tied": Case(tied, {**Q, "trainable_token_indices": {"embed_tokens": [4, 5]}}),
    "tied, both saved": Case(
        tied, {**Q, "modules_to_save": ["embed_tokens"], "ensure_weight_tying": True}
    ),
    "tied, one saved": Case(tied, {**Q, "modules_to_save": ["embed_tokens"]}),
    "tied, both changed": Case(tied, {**Q_AND_TABLE, "ensure_weight_tying": True}, merges=False),
    # PEFT's merge changes the memory that head and embedding share; its adapter does not
    "tied, embedding changed": Case(tied, Q_AND_TABLE, merges=False),
    "tied, head changed": Case(tied, {"target_modules": ["q_proj", "lm_head"]}, merges=False),
}
#: Initializations that leave the base's weights as they are and need no data.
STARTS = (True, False, "gaussian", "orthogonal", "mica", "eva")
CASES |= {f"starts {start}": Case(llama, {**Q, "init_lora_weights": start}) for start in STARTS}


def merged(folder: Path, base: Path | None = None) -> tuple[Model, list[str]]:
    """transformers' class with the weights that an import has, and the import's warnings."""
    made = model_folder(folder, base=base)
    config = read_config(made, allow_remote_code=False)
    whole = build_config(made, config, False)
    text, files = text_config(whole), checkpoint_files(made)
    built = whole if text is None else text
    part_of = "" if text is None else config["architectures"][0]
    found = _match_untied(built, made, files, read_tensors(files, None), part_of, False)
    model = transformers.AutoModelForCausalLM.from_config(built, attn_implementation="eager")
    weights = {
        name: torch.from_numpy(np.ascontiguousarray(tensor.read_rows(0, tensor.shape[0])))
        for name, tensor in found.matched.items()
    }
    unknown = model.load_state_dict(weights, strict=False).unexpected_keys
    assert not unknown
    return model.eval(), found.warnings


@pytest.mark.parametrize("name", CASES)
def test_what_peft_computes(name: str, tmp_path: Path) -> None:
    case = CASES[name]
    adapter = trained(case.base(), tmp_path, case.change, **case.options)
    model, _ = merged(tmp_path / "adapter")
    wanted = reference(adapter, tokens())
    assert error(reference(model, tokens()), wanted) < 1e-5
    whole = adapter.merge_and_unload()
    assert (error(reference(whole, tokens()), wanted) < 1e-5) == case.merges
    base = transformers.AutoModelForCausalLM.from_pretrained(tmp_path / "base")
    plain = reference(base, tokens())
    assert error(plain, wanted[..., : plain.shape[-1]]) > 1e-3


def test_the_graph_computes_it_too(tmp_path: Path) -> None:
    adapter = trained(llama(), tmp_path, target_modules="all-linear", use_dora=True)
    imported = import_model(tmp_path / "adapter")
    Canonicalize().run(imported.model)
    assert error(run(imported.model, tokens()), reference(adapter, tokens())) < 1e-4
    assert (imported.name, imported.warnings) == ("adapter", [])
    # another adapter of the same base is another model
    digest = imported.source_digest
    settings = tmp_path / "adapter/adapter_config.json"
    settings.write_text(json.dumps({**json.loads(settings.read_text()), "lora_alpha": 3}))
    assert import_model(tmp_path / "adapter").source_digest != digest


def test_the_source_is_the_same_wherever_the_base_lies(tmp_path: Path) -> None:
    trained(llama(), tmp_path, **Q)
    digest = import_model(tmp_path / "adapter").source_digest
    (tmp_path / "base").rename(tmp_path / "moved")
    made = model_folder(tmp_path / "adapter", base=tmp_path / "moved")
    assert import_model(made).source_digest == digest


def test_a_part_of_a_wrapper(tmp_path: Path) -> None:
    """Names of the wrapper's class, of which the decoder is one part."""
    text = config_of("Gemma3Text", num_key_value_heads=2, head_dim=12, sliding_window=8)
    vision = {"hidden_size": 32, "intermediate_size": 32, "num_hidden_layers": 1}
    vision |= {"num_attention_heads": 2, "image_size": 28, "patch_size": 14}
    config = transformers.Gemma3Config(text_config=text.to_dict(), vision_config=vision)
    whole = transformers.AutoModelForImageTextToText.from_config(config)
    save(whole, tmp_path / "base")
    options = peft.LoraConfig(r=4, target_modules=["q_proj"])
    adapter = peft.get_peft_model(whole.eval(), options)
    with torch.no_grad():
        for name, parameter in adapter.named_parameters():
            if "lora_B" in name:
                parameter.add_(torch.randn_like(parameter) * 0.1)
    adapter.save_pretrained(tmp_path / "adapter")
    model, warnings = merged(tmp_path / "adapter", tmp_path / "base")
    assert error(reference(model, tokens()), reference(adapter, tokens())) < 1e-5
    assert "the adapter's changes to 1 parameters of other parts are left out" in warnings


def test_a_gguf_file_as_the_base(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model = build(config_of("Llama", hidden_size=64, intermediate_size=64))
    adapter = trained(model, tmp_path, target_modules=["q_proj", "k_proj", "down_proj"])
    config = tmp_path / "base/config.json"
    config.write_text(json.dumps({**json.loads(config.read_text()), "rope_theta": 1e4}))
    file = tmp_path / "base.gguf"
    write_llama(tmp_path / "base", file, of_kind(gguf.GGMLQuantizationType.F32))
    found, _ = merged(tmp_path / "adapter", file)
    wanted = adapter.merge_and_unload().state_dict()
    for name in ("model.layers.0.self_attn.q_proj.weight", "model.layers.0.mlp.down_proj.weight"):
        torch.testing.assert_close(found.state_dict()[name], wanted[name], atol=1e-6, rtol=1e-5)


def edit_tensors(folder: Path, change: Callable[[dict[str, torch.Tensor]], None]) -> None:
    file = folder / "adapter/adapter_model.safetensors"
    tensors = load_file(file)
    change(tensors)
    save_file(tensors, file)


PREFIX = "base_model.model.model.layers.0.self_attn.q_proj"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda t: t.update({"base_model.model.x.weight": torch.ones(2)}), "it changes x.weight"),
        (lambda t: t.pop(f"{PREFIX}.lora_A.weight"), "lacks lora_A or lora_B"),
        (lambda t: t.update({f"{PREFIX}.lora_A.weight": torch.ones(4, 5)}), "do not fit a layer"),
        (lambda t: t.update({f"{PREFIX}.lora_B.weight": torch.ones(5, 4)}), "do not fit a layer"),
        (lambda t: t.update({f"{PREFIX}.lora_C.weight": torch.ones(5, 4)}), "none of those of"),
        (lambda t: t.update({f"{PREFIX}.lora_B.bias": torch.ones(48)}), "has no bias"),
        (lambda t: t[f"{PREFIX}.lora_B.weight"].fill_(np.nan), "NaN or infinities"),
        (
            lambda t: t.update(
                {"base_model.model.model.norm.lora_A.weight": torch.ones(4, 5),
                 "base_model.model.model.norm.lora_B.weight": torch.ones(5, 4)}
            ),
            "no matrix of a linear layer",
        ),
        (
            lambda t: t.update(
                {"base_model.model.model.embed_tokens.token_adapter.trainable_tokens_delta":
                 torch.ones(2, 48)}
            ),
            "names other tokens than there are rows",
        ),
    ],
)  # fmt: skip
def test_adapters_that_do_not_fit(
    change: Callable[[dict[str, torch.Tensor]], None], message: str, tmp_path: Path
) -> None:
    trained(llama(), tmp_path, **Q)
    edit_tensors(tmp_path, change)
    with pytest.raises(InputError, match=message):
        import_model(tmp_path / "adapter")


def test_a_token_that_the_base_has_not(tmp_path: Path) -> None:
    trained(llama(), tmp_path, **Q, trainable_token_indices=[5])
    file = tmp_path / "adapter/adapter_config.json"
    settings = {**json.loads(file.read_text()), "trainable_token_indices": [500]}
    file.write_text(json.dumps(settings))
    with pytest.raises(InputError, match="a token that the base has not"):
        import_model(tmp_path / "adapter")


def test_parameters_of_experts_are_refused(tmp_path: Path) -> None:
    trained(llama(), tmp_path, **Q)
    file = tmp_path / "adapter/adapter_config.json"
    settings = {**json.loads(file.read_text()), "target_parameters": ["experts.up"]}
    file.write_text(json.dumps(settings))
    with pytest.raises(UnsupportedError, match=r"target_parameters=.* is not merged"):
        import_model(tmp_path / "adapter")
