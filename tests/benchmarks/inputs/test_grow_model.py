"""Growing a model changes its size and nothing that it computes."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from transformers import AutoModelForCausalLM

from benchmarks.inputs.grow_model import grow
from benchmarks.inputs.shards import Tensor, write_checkpoint
from optc.errors import InputError
from optc.importer.checkpoint import checkpoint_files, read_checkpoint

PYCODE = Path("examples/models/pycode").resolve()


def logits(folder: Path, tokens: list[int]) -> np.ndarray:
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    with torch.no_grad():
        return model(torch.tensor([tokens])).logits[0].double().numpy()


def test_grown_model_computes_what_the_trained_one_does(tmp_path: Path) -> None:
    grow(PYCODE, 2, tmp_path / "grown")
    tokens = np.random.default_rng(0).integers(3, 4096, 48).tolist()
    expected, found = logits(PYCODE, tokens), logits(tmp_path / "grown", tokens)
    # float32 sums of other lengths: some units of the last of 24 bits, over six layers.
    assert np.abs(expected - found).max() < 2e-5 * np.abs(expected).max()


def test_sizes_grow_and_every_weight_is_exact(tmp_path: Path) -> None:
    grow(PYCODE, 4, tmp_path / "grown")
    old = json.loads((PYCODE / "config.json").read_text())
    new = json.loads((tmp_path / "grown/config.json").read_text())
    for key in ("hidden_size", "intermediate_size", "num_attention_heads", "num_key_value_heads"):
        assert new[key] == 4 * old[key]
    for key in ("head_dim", "vocab_size", "num_hidden_layers", "rms_norm_eps"):
        assert new[key] == old[key]
    assert new["tie_word_embeddings"] is False
    assert (tmp_path / "grown/tokenizer.json").read_bytes() == (
        PYCODE / "tokenizer.json"
    ).read_bytes()
    before = read_checkpoint(checkpoint_files(PYCODE))
    after = read_checkpoint(checkpoint_files(tmp_path / "grown"))
    assert sum(int(np.prod(t.shape)) for t in after.values()) == 163_597_824
    name = "model.layers.3.self_attn.k_proj.weight"
    small, large = (t.read_rows(0, t.shape[0]) for t in (before[name], after[name]))
    np.testing.assert_array_equal(large, np.tile(small / 4, (4, 4)))
    table = before["model.embed_tokens.weight"].read_rows(100, 110)
    grown_table = after["model.embed_tokens.weight"].read_rows(100, 110)
    np.testing.assert_array_equal(grown_table, np.tile(table, (1, 4)))
    np.testing.assert_array_equal(
        after["lm_head.weight"].read_rows(100, 110), np.tile(table / 4, (1, 4))
    )
    assert {t.dtype for t in after.values()} == {"BF16"}


def test_an_untied_head_stays_the_head(tmp_path: Path) -> None:
    once, twice = tmp_path / "once", tmp_path / "twice"
    grow(PYCODE.with_name("pycode-draft"), 1, once)
    grow(once, 2, twice)
    head = read_checkpoint(checkpoint_files(once))["lm_head.weight"].read_rows(0, 9)
    grown = read_checkpoint(checkpoint_files(twice))["lm_head.weight"].read_rows(0, 9)
    np.testing.assert_array_equal(grown, np.tile(head / 2, (1, 2)))


def test_shards_are_cut_at_the_limit(tmp_path: Path) -> None:
    values = np.arange(6, dtype=np.float32).reshape(2, 3)
    tensors = [Tensor(name, "F32", (2, 3), lambda: iter([values])) for name in "abc"]
    write_checkpoint(tmp_path, tensors, limit=48)
    files = checkpoint_files(tmp_path)
    assert [file.stat().st_size > 0 for file in files] == [True, True]
    for stored in read_checkpoint(files).values():
        np.testing.assert_array_equal(stored.read_rows(0, 2), values)


def test_what_cannot_grow_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="factor: 3 is no power of two"):
        grow(PYCODE, 3, tmp_path / "grown")
    (tmp_path / "grown").mkdir()
    with pytest.raises(InputError, match="grown: exists already"):
        grow(PYCODE, 2, tmp_path / "grown")
    with pytest.raises(InputError, match=r"config\.json: is missing"):
        grow(tmp_path, 2, tmp_path / "other")
    (tmp_path / "config.json").write_text('{"model_type": "gpt2"}')
    with pytest.raises(InputError, match="a 'gpt2', not a llama"):
        grow(tmp_path, 2, tmp_path / "other")
    assert not (tmp_path / "other").exists()


def test_a_weight_below_the_range_of_bfloat16_is_refused(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text((PYCODE / "config.json").read_text())
    tiny = np.array([[1]], np.uint16)  # the smallest subnormal
    write_checkpoint(
        tmp_path, [Tensor("model.embed_tokens.weight", "BF16", (1, 1), lambda: iter([tiny]))]
    )
    with pytest.raises(InputError, match="too small to be divided exactly"):
        grow(tmp_path, 2, tmp_path / "grown")
    assert not [path for path in tmp_path.iterdir() if "grown" in path.name]
