"""Scaled rotary frequencies in GGUF files: what readers compute with is what the config says."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import onnx_ir as ir
import pytest
from transformers import AutoConfig, LlamaConfig, PretrainedConfig, Qwen3Config
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

from optc import registry
from optc.errors import UnsupportedError
from optc.export.export import export_artifact
from optc.export.gguf.rotary import frequency_factors
from optc.export.gguf.settings import add_settings
from optc.importer.gguf.config import read_gguf_config
from optc.importer.gguf.file import metadata_of, open_gguf
from optc.ir.weights import LazyWeight
from tests.export.conftest import Made
from tests.export.engines import GraphWeight

THETA = {"rope_theta": 1e4}
LINEAR = {"rope_type": "linear", "factor": 4.0, **THETA}
YARN = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32, **THETA}
LLAMA3 = {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0}
LLAMA3 |= {"original_max_position_embeddings": 64, **THETA}


def config_with(kind: type[PretrainedConfig], rope: dict[str, Any]) -> PretrainedConfig:
    sizes = {"hidden_size": 64, "num_attention_heads": 2, "num_key_value_heads": 2}
    return kind(**sizes, head_dim=32, max_position_embeddings=128, rope_parameters={**rope})


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


def test_an_exported_file_has_the_factors(
    kinds: dict[str, Made], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The weights of qwen2, with one bias more, are those of a llama with biases."""
    made = kinds["qwen2"]
    monkeypatch.setattr(registry, "backend", {"toy": made.backend}.__getitem__)
    source = made.artifact.manifest.source
    stated = {**source.config, "model_type": "llama", "architectures": ["LlamaForCausalLM"]}
    stated |= {"attention_bias": True, "rope_parameters": {**LLAMA3}}
    bias = "model.layers.0.self_attn.o_proj.bias"
    zeros = np.zeros(64, np.float32)
    floats = LazyWeight(lambda a, b: zeros[a:b], (64,), ir.DataType.FLOAT, bias)
    monkeypatch.setitem(made.backend.weights, bias, GraphWeight(floats))
    artifact = replace(
        made.artifact,
        manifest=replace(made.artifact.manifest, source=replace(source, config=stated)),
    )
    export_artifact(artifact, "gguf", tmp_path / "m.gguf")
    read = {one.name: one for one in gguf.GGUFReader(tmp_path / "m.gguf").tensors}
    factors = read["rope_freqs.weight"]
    assert (factors.tensor_type.name, list(factors.shape)) == ("F32", [8])
    assert (factors.data[0], factors.data[-1]) == (1.0, 8.0)
