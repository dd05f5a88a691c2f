"""Int8 weights for vLLM: the folder that it reads, against the weights that it was made of."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from benchmarks.peers import w8a8

NAME = "model.layers.0.mlp.down_proj.weight"


def test_a_value_is_off_by_half_a_step_of_its_row_at_most() -> None:
    weight = torch.randn(7, 33, generator=torch.Generator().manual_seed(0))
    weight[2] = 0
    weight[3] *= 100
    values, scales = w8a8.quantized(weight)
    assert (values.dtype, scales.dtype, scales.shape) == (torch.int8, torch.bfloat16, (7, 1))
    error = (values.float() * scales.float() - weight).abs()
    # a scale in bfloat16 may be a part in 256 too small for the row's largest value
    assert (error <= scales.float() * (0.5 + 127 / 256)).all()
    assert (values[2] == 0).all()


def test_matrices_of_layers_are_int8_and_the_rest_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source, output = tmp_path / "source", tmp_path / "output"
    source.mkdir()
    norm, table = "model.layers.0.input_layernorm.weight", "model.embed_tokens.weight"
    save_file(
        {NAME: torch.ones(4, 8), norm: torch.ones(8), table: torch.ones(5, 8)},
        source / "model.safetensors",
    )
    (source / "config.json").write_text(json.dumps({"model_type": "llama", "dtype": "float32"}))
    monkeypatch.setattr(sys, "argv", ["w8a8.py", str(source), str(output)])
    w8a8.main()
    found = load_file(output / "model.safetensors")
    kinds = {name: tensor.dtype for name, tensor in found.items()}
    bf16 = torch.bfloat16
    assert kinds == {NAME: torch.int8, f"{NAME}_scale": bf16, norm: bf16, table: bf16}
    config = json.loads((output / "config.json").read_text())
    assert config["quantization_config"]["format"] == "int-quantized"
    (group,) = config["quantization_config"]["config_groups"].values()
    assert (group["weights"]["strategy"], group["input_activations"]["strategy"]) == (
        "channel",
        "token",
    )
