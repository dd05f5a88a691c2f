"""`optc qat` on a tiny model: it begins at the recipe's rounding, and is compiled as trained."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from optc.compiling.training.qat import qat, quantized_weights
from optc.errors import InputError
from optc.importer.additions.trained import digest_trained, read_trained
from optc.importer.imported import ImportedModel
from optc.ir.pipeline import registry
from optc.ir.pipeline.entries import read_pipeline
from optc.system.options.training_options import QatOptions

QUICK: dict[str, Any] = {
    "tokens": "2048",
    "window": 32,
    "batch": 4,
    "threads": 1,
    "precision": "float32",
}
RECIPE = """
name: two-bits
description: d
backend: tvm
pipeline:
  - canonicalize
  - propagate-errors: {windows: 16, window_tokens: 64}
  - fuse-qkv
  - kv-cache
  - quantize-weights: {bits: 2, group_size: 32, symmetric: false, group_scales: int, head_bits: 6,
      method: gptq}
gates: {}
"""


@pytest.fixture
def recipe(tmp_path: Path) -> Path:
    path = tmp_path / "two-bits.yaml"
    path.write_text(RECIPE)
    return path


def test_codes_are_compiled_as_they_were_trained(
    trained_source: ImportedModel, source: Path, text: Path, recipe: Path
) -> None:
    out = text.parent / "out"
    asked = QatOptions(
        text=[str(text)],
        output=out,
        recipe=recipe,
        calibration=text,
        rate="5e-3",
        scale_rate="1",
        **QUICK,
    )
    outcome = qat(source, asked)
    assert outcome.figures["kl"] < outcome.figures["start_kl"]
    trained = read_trained(out)
    assert trained.kind == "qat"
    assert len(trained.rounded) == 15  # the head too
    # as a compile takes them: fused layers read the rows of their parts
    model = dataclasses.replace(trained_source, model=trained_source.model.clone()).model
    text_of = {"text": str(text), "folder": str(source), "windows": 16, "window_tokens": 64}
    taken = {"folder": str(out), "sha256": digest_trained(out)}
    rounding = {
        "bits": 2,
        "group_size": 32,
        "symmetric": False,
        "group_scales": "int",
        "head_bits": 6,
        "method": "gptq",
    }
    entries = [
        "canonicalize",
        {"trained-weights": taken},
        {"propagate-errors": text_of},
        "fuse-qkv",
        {"quantize-weights": rounding},
    ]
    read_pipeline(entries, registry).run(model)
    found = quantized_weights(model)
    fused = found["model.layers.0.self_attn.q_proj+k_proj+v_proj.weight"]
    parts = [trained.rounded[f"model.layers.0.self_attn.{one}_proj.weight"].tile for one in "qkv"]
    for index, part in enumerate(fused.read(0, fused.rows)):
        wanted = [one[index] for one in parts if one[index] is not None]
        assert part is not None
        np.testing.assert_array_equal(part, np.concatenate(wanted))
    down = "model.layers.1.mlp.down_proj.weight"
    for got, wanted in zip(found[down].read(0, 32), trained.rounded[down].tile, strict=True):
        np.testing.assert_array_equal(got, wanted)
    assert trained.tensors["model.norm.weight"].shape == (32,)


def test_recipes_that_round_nothing_are_refused(source: Path, text: Path) -> None:
    asked = QatOptions(text=[str(text)], output=text.parent / "o")
    with pytest.raises(InputError, match="--recipe: no recipe says how weights are rounded"):
        qat(source, asked)
    with pytest.raises(InputError, match="the recipe fp32 rounds no weights to integers"):
        qat(source, dataclasses.replace(asked, recipe="fp32"))
