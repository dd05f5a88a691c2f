"""Random mixtures of experts: files that transformers' names and shapes fit."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch
import transformers

from benchmarks.inputs.build_random_llama import build
from benchmarks.inputs.build_random_moe import SHAPES

TINY = {"hidden": 64, "layers": 2, "heads": 4, "kv_heads": 2, "head_dim": 16, "mlp": 32}


@pytest.mark.parametrize("name", sorted(SHAPES))
def test_a_tiny_one_has_all_tensors_of_the_model(name: str, tmp_path: Path) -> None:
    shape = replace(SHAPES[name], **TINY, experts=8, chosen=2, vocab=256)
    build(shape, tmp_path)
    config = json.loads((tmp_path / "config.json").read_text())
    assert config["num_experts_per_tok"] == 2
    model, info = transformers.AutoModelForCausalLM.from_pretrained(
        tmp_path, output_loading_info=True, dtype=torch.float32
    )
    assert not any(info.values()), info
    logits = model(torch.arange(9)[None]).logits
    assert logits.shape == (1, 9, 256)
    assert 0.5 < logits.std() < 2


def test_the_real_shapes_are_those_of_their_names() -> None:
    layer = sum(
        rows[0] * rows[1] for name, rows in SHAPES["qwen3-30b-a3b"].mixture() if "experts" in name
    )
    assert layer == 128 * 3 * 2048 * 768
    assert SHAPES["gpt-oss-20b"].experts == 32
    assert SHAPES["mixtral-8x7b"].mlp == 14336
