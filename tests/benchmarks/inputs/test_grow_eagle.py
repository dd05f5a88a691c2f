"""A grown layer guesses of a grown model's hidden states what the small one guesses."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx_ir as ir
import pytest

from benchmarks.inputs.grow_eagle import grow_eagle
from benchmarks.inputs.grow_model import grow
from optc.compiling.drafts.eagle_layer import make_draft_layer
from optc.errors import InputError
from optc.importer.import_model import import_model
from optc.importer.safetensors import read_header
from tests.support.drafts.heads import write_layer, write_tensors
from tests.support.oracle import Array
from tests.support.pipelines import pipeline_of
from tests.support.ragged import run

MODELS = Path(__file__).parents[3] / "examples/models"
#: The smallest model there is; a layer of seeded weights drafts for it.
MODEL = MODELS / "pycode-draft"
FACTOR = 2


def dense_form(model: Path) -> ir.Model:
    """A model folder, as layers are made of it."""
    dense = import_model(model).model
    pipeline_of("canonicalize").run(dense)
    return dense


def logits(dense: ir.Model, layer: Path, tokens: Array, features: Array) -> Array:
    """[S, V] of the layer in the place of a model, by ONNX Runtime."""
    make_draft_layer(dense, layer)
    positions = np.arange(len(tokens), dtype=np.int64)[None]
    feeds = {"input_ids": tokens[None], "position_ids": positions, "features": features[None]}
    found: Array = run(dense, feeds)[0][0]
    return found


def test_a_grown_layer_says_what_the_small_one_says(tmp_path: Path) -> None:
    small, grown = tmp_path / "small", tmp_path / "grown"
    model = dense_form(MODEL)
    write_layer(small, model)
    grow(MODEL, FACTOR, tmp_path / "model")
    grow_eagle(small, FACTOR, grown)
    random = np.random.default_rng(1)
    tokens = random.integers(3, 4096, 12)
    features = random.standard_normal((12, 128)).astype(np.float32)
    wide = np.tile(features, (1, FACTOR))
    want = logits(model, small, tokens, features)
    found = logits(dense_form(tmp_path / "model"), grown, tokens, wide)
    # float32 sums of other lengths.
    np.testing.assert_allclose(found, want, atol=2e-5 * float(np.abs(want).max()))
    assert (grown / "config.json").read_bytes() == (small / "config.json").read_bytes()


def test_weights_of_a_trained_layer_are_exact(tmp_path: Path) -> None:
    layer = MODELS / "pycode-eagle"
    grow_eagle(layer, 4, tmp_path / "grown")
    before, after = (read_header(at / "eagle.safetensors") for at in (layer, tmp_path / "grown"))
    assert {tensor.dtype for tensor in after.values()} == {"BF16"}
    fc = before["eagle.fc.weight"].read_rows(0, 384) / 4
    wide = np.concatenate([np.tile(half, (4, 4)) for half in np.split(fc, 2, axis=1)], 1)
    np.testing.assert_array_equal(after["eagle.fc.weight"].read_rows(0, 4 * 384), wide)
    name = "model.layers.0.mlp.down_proj.weight"
    down = before[name].read_rows(0, 384) / 4
    np.testing.assert_array_equal(after[name].read_rows(0, 4 * 384), np.tile(down, (4, 4)))


def test_what_cannot_grow_is_refused(tmp_path: Path) -> None:
    layer = MODELS / "pycode-eagle"
    with pytest.raises(InputError, match="factor: 3 is no power of two"):
        grow_eagle(layer, 3, tmp_path / "grown")
    with pytest.raises(InputError, match=r"no config\.json"):
        grow_eagle(tmp_path, 2, tmp_path / "grown")
    (tmp_path / "grown").mkdir()
    with pytest.raises(InputError, match="grown: exists already"):
        grow_eagle(layer, 2, tmp_path / "grown")
    write_tensors(tmp_path / "strange", {"model.embed.bias": (4, 4)})
    with pytest.raises(InputError, match="not a tensor of a Llama"):
        grow_eagle(tmp_path / "strange", 2, tmp_path / "other")
    assert not (tmp_path / "other").exists()
