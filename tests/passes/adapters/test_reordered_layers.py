"""LoRA adapters on layers whose rows the importer put in another order: PEFT's logits."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from peft import LoraConfig, PeftModel, get_peft_model

from optc.importer.import_model import import_model
from optc.ir.forms.ragged import RaggedStep
from optc.runtime.adapters.peft import read_peft
from tests.importer.decoders import build, config_of, reference, save, tokens
from tests.support.pipelines import pipeline_of
from tests.support.ragged import Array, RaggedDriver

PIPELINE = "canonicalize,fuse-qkv,fuse-gate-up,kv-cache,fuse-residual-norm,fuse-rotary"
SIZES = {"num_hidden_layers": 1, "hidden_size": 32, "intermediate_size": 48}
#: Heads inside one projection, interleaved rotary, weights by input channel.
FAMILIES: dict[str, tuple[dict[str, Any], list[str]]] = {
    "GPTNeoX": ({"rotary_pct": 0.5}, ["query_key_value", "dense", "dense_4h_to_h"]),
    "Glm": ({"head_dim": 8, "pad_token_id": 0}, ["q_proj", "k_proj", "v_proj", "gate_up_proj"]),
    "GPT2": ({}, ["c_attn", "c_fc"]),
}


def adapters_of(base: Any, targets: list[str], folder: Path) -> list[Path]:
    """Two of PEFT's, of different ranks, with weights large enough to change what is said."""
    torch.manual_seed(0)
    found = []
    for rank in (4, 8):
        by_input = type(base).__name__.startswith("GPT2")
        config = LoraConfig(r=rank, target_modules=targets, fan_in_fan_out=by_input)
        model = get_peft_model(base, config)
        for name, values in model.named_parameters():
            if "lora_" in name:
                torch.nn.init.normal_(values, std=0.3)
        found.append(folder / f"rank-{rank}")
        model.save_pretrained(found[-1])
        base = model.unload()
    return found


def logits_of(model: Any, adapters: list[Path], ids: Array) -> Array:
    """Of rows without an adapter, and with each."""
    step = RaggedStep.read(model).adapters
    assert step is not None
    driver = RaggedDriver(model)
    loaded = [read_peft(folder, step) for folder in adapters]
    for index, module in enumerate(step.modules):
        shape_a = (step.max, module.k, len(module.parts) * step.rank)
        a, b = np.zeros(shape_a, np.float32), np.zeros((step.max, step.rank, module.n), np.float32)
        for slot, weights in enumerate(loaded):
            if (own := weights[index]) is not None:
                a[slot], b[slot] = own.a, own.b
        driver.more_feeds |= {f"adapter_a.{index}": a, f"adapter_b.{index}": b}
    slots = np.repeat(np.array([-1, 0, 1], np.int32), len(ids))
    driver.more_feeds |= {"adapters": slots, "logit_adapters": slots}
    return driver.step(dict.fromkeys(range(3), ids)).reshape(3, len(ids), -1)


@pytest.mark.parametrize("kind", FAMILIES)
def test_adapters_give_the_logits_of_peft(kind: str, tmp_path: Path) -> None:
    options, targets = FAMILIES[kind]
    base = build(config_of(kind, **SIZES, **options))
    model = import_model(save(base, tmp_path / "model")).model
    pipeline_of(f"{PIPELINE},adapters{{max=2,rank=8}}").run(model)
    folders = adapters_of(base, targets, tmp_path)
    ids = tokens()[:1, :9]
    found = logits_of(model, folders, ids[0].tolist())
    wanted = [reference(base, ids)[0]]
    for folder in folders:
        adapted = PeftModel.from_pretrained(base, folder)
        wanted.append(reference(adapted.merge_and_unload(), ids)[0])
        base = build(config_of(kind, **SIZES, **options))
    assert all(np.abs(wanted[0] - other).max() > 0.1 for other in wanted[1:])
    for got, want in zip(found, wanted, strict=True):
        np.testing.assert_allclose(got, want, rtol=0, atol=1e-4 * np.abs(want).max())
