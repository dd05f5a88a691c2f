"""Scaled rotary frequencies in GGUF files: what readers compute with is what the config says."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest
import torch
from transformers import AutoConfig, LlamaConfig, PretrainedConfig, Qwen3Config
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

from optc import registry
from optc.compiling.export.export import export_artifact
from optc.compiling.export.gguf.rotary import frequency_factors
from optc.compiling.export.gguf.settings import add_settings
from optc.errors import UnsupportedError
from optc.importer.gguf.config import read_gguf_config
from optc.importer.gguf.file import metadata_of, open_gguf
from optc.passes.numerics.scheme import Scheme
from tests.compiling.export.engines import (
    CANONICALIZE,
    VOCABULARY,
    GivingBackend,
    weights_of_class,
    write_giving,
)
from tests.compiling.export.readers import imported_class
from tests.importer.decoders import build, config_of, error, reference, tokens

THETA = {"rope_theta": 1e4}
LINEAR = {"rope_type": "linear", "factor": 4.0, **THETA}
YARN = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32, **THETA}
LLAMA3 = {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0}
LLAMA3 |= {"original_max_position_embeddings": 64, **THETA}


def config_with(kind: type[PretrainedConfig], rope: dict[str, Any]) -> PretrainedConfig:
    sizes = {"hidden_size": 64, "num_attention_heads": 2, "num_key_value_heads": 2}
    # transformers' table has no key for the head_dim of qwen3, whose own is 128
    width = 128 if kind is Qwen3Config else 32
    return kind(**sizes, head_dim=width, max_position_embeddings=128, rope_parameters={**rope})


def written(config: PretrainedConfig, file: Path) -> Path:
    writer = gguf.GGUFWriter(file, config.model_type)
    add_settings(writer, config.model_type, config)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_ti_data_to_file()
    writer.close()
    return file


@pytest.mark.parametrize("kind", [LlamaConfig, Qwen3Config])
@pytest.mark.parametrize("rope", [LINEAR, YARN, {**YARN, "beta_fast": 32.0}])
def test_settings_say_the_frequencies(
    kind: type[PretrainedConfig], rope: dict[str, Any], tmp_path: Path
) -> None:
    config = config_with(kind, rope)
    assert frequency_factors(config) is None
    file = written(config, tmp_path / "m.gguf")
    fields = gguf.GGUFReader(file).fields
    assert fields[f"{config.model_type}.rope.scaling.type"].contents() == rope["rope_type"]
    assert fields[f"{config.model_type}.rope.scaling.factor"].contents() == 4.0
    read = AutoConfig.for_model(**read_gguf_config(file, metadata_of(open_gguf(file))))
    for ours, theirs in zip(frequencies(config), frequencies(read), strict=True):
        np.testing.assert_allclose(theirs, ours, rtol=1e-6)


def frequencies(config: PretrainedConfig) -> tuple[Any, float]:
    values, attention = ROPE_INIT_FUNCTIONS[config.rope_parameters["rope_type"]](config, "cpu")
    return values.numpy(), attention


def test_factors_of_llama3_divide_plain_frequencies() -> None:
    config = config_with(LlamaConfig, LLAMA3)
    factors = frequency_factors(config)
    assert factors is not None
    assert factors.shape == (16,)
    assert (factors[0], factors[-1]) == (1.0, 8.0)
    plain = 1e4 ** -(np.arange(16) / 16)
    np.testing.assert_allclose(plain / factors, frequencies(config)[0], rtol=1e-6)


@pytest.mark.parametrize(
    ("kind", "rope"),
    [
        (Qwen3Config, LLAMA3),  # llama.cpp reads factors of llama alone
        (LlamaConfig, {**LINEAR, "rope_type": "dynamic"}),
        (LlamaConfig, {**YARN, "beta_fast": 16.0}),
        (LlamaConfig, {**YARN, "attention_factor": 2.0}),
    ],
)
def test_what_files_cannot_say_is_refused(
    kind: type[PretrainedConfig], rope: dict[str, Any], tmp_path: Path
) -> None:
    with pytest.raises(UnsupportedError, match=f"cannot say rope = .*{rope['rope_type']}"):
        written(config_with(kind, rope), tmp_path / "m.gguf")


def test_an_exported_file_has_the_factors(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With them the model that the importer reads has the logits of the source."""
    sizes = {"vocab_size": VOCABULARY, "hidden_size": 64, "intermediate_size": 96, "head_dim": 16}
    model = build(config_of("Llama", **sizes, rope_parameters={**LLAMA3}))
    backend = GivingBackend(weights_of_class(model, Scheme(4, 32, True)))
    monkeypatch.setattr(registry, "backend", {"toy": backend}.__getitem__)
    config = {**model.config.to_dict(), "architectures": ["LlamaForCausalLM"]}
    export_artifact(write_giving(tmp_path / "a", config, CANONICALIZE), "gguf", tmp_path / "m.gguf")
    read = {one.name: one for one in gguf.GGUFReader(tmp_path / "m.gguf").tensors}
    factors = read["rope_freqs.weight"]
    assert (factors.tensor_type.name, list(factors.shape)) == ("F32", [8])
    wanted = frequencies(model.config)[0]
    np.testing.assert_allclose(1e4 ** -(np.arange(8) / 8) / factors.data, wanted, rtol=1e-6)
    theirs = reference(model, tokens())
    assert error(reference(imported_class(tmp_path / "m.gguf"), tokens()), theirs) < 1e-5
    model.model.rotary_emb.inv_freq = torch.from_numpy(1e4 ** -(np.arange(8) / 8)).float()
    assert error(reference(model, tokens()), theirs) > 1e-2, "the factors change nothing here"
