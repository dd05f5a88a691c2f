"""The layer that drafts by hidden states: against NumPy, and folders that are none."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from optc.compiling.drafts.eagle_layer import layer_weights, make_draft_layer
from optc.errors import InputError, UnsupportedError
from optc.importer.additions.eagle import digest_eagle
from optc.ir.forms.decoder import Dense as DenseForm
from optc.ir.linear import head_of
from tests.support.drafts.heads import write_layer
from tests.support.models import Dense, dense_model
from tests.support.oracle import Array, attention, gated, rms_norm, rotary
from tests.support.pipelines import pipeline_of
from tests.support.ragged import RaggedDriver, run

SHAPE = Dense(hidden=32, vocab=61, windows=(5, 0), tied=True)
EPSILON = 1e-5


def expected(tensors: dict[str, Array], table: Array, tokens: Array, features: Array) -> Array:
    """The layer's hidden states [S, D], in float64."""
    s = SHAPE
    t = {name: value.astype(np.float64) for name, value in tensors.items()}
    embedded = rms_norm(table[tokens], t["eagle.embedding_norm.weight"], EPSILON)
    known = rms_norm(features, t["eagle.feature_norm.weight"], EPSILON)
    x = np.concatenate([embedded, known], 1) @ t["eagle.fc.weight"].T
    h = rms_norm(x, t["0.input_norm.weight"], EPSILON)
    q, k, v = (h @ t[f"0.{name}.weight"].T for name in ("q", "k", "v"))
    half = s.rotary_dim // 2
    angles = np.arange(len(tokens))[:, None] * 100.0 ** (-np.arange(half) / half)
    cos, sin = np.cos(angles), np.sin(angles)
    q, k = rotary(q, cos, sin, s.heads), rotary(k, cos, sin, s.kv_heads)
    scale = s.head_dim**-0.5
    mixed = attention(q, k, v, s.heads, s.kv_heads, scale, s.softcap, s.windows[0])
    x = x + mixed @ t["0.o.weight"].T
    h = rms_norm(x, t["0.mlp_norm.weight"], EPSILON)
    gate_up = np.concatenate([h @ t[f"0.{name}.weight"].T for name in ("gate", "up")], 1)
    x = x + gated(gate_up, "silu") @ t["0.down.weight"].T
    return rms_norm(x, t["final_norm.weight"], EPSILON)


def table_of(shape: Dense) -> Array:
    """Embedding and head [V, D]."""
    head = head_of(dense_model(shape))
    assert head is not None
    return head.weight.read_rows(0, shape.vocab).astype(np.float64)


def feeds(tokens: Array, features: Array) -> dict[str, Array]:
    positions = np.arange(len(tokens), dtype=np.int64)[None]
    return {"input_ids": tokens[None], "position_ids": positions, "features": features[None]}


@pytest.mark.parametrize("windows", [(5, 0), (5,)])
def test_the_layer_in_dense_form(tmp_path: Path, windows: tuple[int, ...]) -> None:
    """Also of a model that has one layer itself."""
    shape = Dense(hidden=32, vocab=61, windows=windows, tied=True)
    model = dense_model(shape)
    tensors = write_layer(tmp_path, model)
    make_draft_layer(model, tmp_path)
    DenseForm.of(model)
    random = np.random.default_rng(1)
    tokens = random.integers(0, shape.vocab, 12)
    features = random.standard_normal((12, shape.hidden)).astype(np.float32)
    features[0] = 0
    (logits,) = run(model, feeds(tokens, features))
    want = expected(tensors, table_of(shape), tokens, features) @ table_of(shape).T
    np.testing.assert_allclose(logits[0], want, atol=2e-5)
    assert set(layer_weights(model)) == {
        f"eagle.{name}" if not name.startswith("eagle.") else name
        for name, value in tensors.items()
        if value.ndim == 2
    }


@pytest.mark.parametrize("quantized", [False, True])
def test_the_layer_as_a_ragged_step(tmp_path: Path, quantized: bool) -> None:
    """Logits and guesses of every row, in pieces, of two texts at once."""
    model = dense_model(SHAPE)
    tensors = write_layer(tmp_path, model)
    make_draft_layer(model, tmp_path)
    more = ",quantize-weights,fuse-norm-quantize" if quantized else ""
    pipeline_of(
        f"fuse-qkv,fuse-gate-up,kv-cache,hidden-states,fuse-residual-norm,fuse-rotary{more}"
    ).run(model)
    random, table = np.random.default_rng(1), table_of(SHAPE)
    texts = [random.integers(0, SHAPE.vocab, 9) for _ in range(2)]
    features = [random.standard_normal((9, SHAPE.hidden)).astype(np.float32) for _ in texts]
    driver = RaggedDriver(model, extra=("hidden",))
    for start, stop in ((0, 6), (6, 7), (7, 9)):
        part = slice(start, stop)
        driver.more_feeds["features"] = np.concatenate([rows[part] for rows in features])
        wanted = [stop - start - 1, 2 * (stop - start) - 1]
        logits = driver.step({i: text[part].tolist() for i, text in enumerate(texts)}, wanted)
        hidden = driver.more_results[0]
        want = [
            expected(tensors, table, text[:stop], rows[:stop])[part]
            for text, rows in zip(texts, features, strict=True)
        ]
        tolerance = 0.15 if quantized else 2e-5
        assert hidden.shape == (2 * (stop - start), SHAPE.hidden)
        np.testing.assert_allclose(hidden, np.concatenate(want), atol=tolerance)
        last = np.array([rows[-1] for rows in want])
        np.testing.assert_allclose(logits, last @ table.T, atol=5 * tolerance)


def refused(folder: Path) -> str:
    with pytest.raises(InputError) as caught:
        make_draft_layer(dense_model(SHAPE), folder)
    return str(caught.value).replace(str(folder), "F")


def test_folders_that_are_none_are_refused(tmp_path: Path) -> None:
    hint = "train a layer for this model with examples/training/train_eagle.py"
    assert refused(tmp_path) == f"F: no eagle.safetensors ({hint})"
    write_layer(tmp_path, dense_model(Dense(hidden=48, vocab=61, windows=(0, 0))))
    file = tmp_path / "eagle.safetensors"
    assert refused(tmp_path) == (
        f"F/eagle.safetensors: 0.input_norm.weight should be of shape [32], there is [48] ({hint})"
    )
    tensors = write_layer(tmp_path, dense_model(SHAPE))
    save_file({n: t for n, t in tensors.items() if n != "eagle.fc.weight"}, file)
    assert refused(tmp_path) == (
        "F/eagle.safetensors: eagle.fc.weight should be of shape [32, 64], there is nothing "
        f"({hint})"
    )
    save_file(tensors | {"1.q.weight": np.zeros((2, 2), np.float32)}, file)
    assert refused(tmp_path) == f"F/eagle.safetensors: 1.q.weight is none of the layer's ({hint})"


def test_the_digest_depends_on_contents_only(tmp_path: Path) -> None:
    for name, seed in (("a", 3), ("b/renamed", 3), ("c", 4)):
        write_layer(tmp_path / name, dense_model(SHAPE), seed)
    first, copy, other = (digest_eagle(tmp_path / name) for name in ("a", "b/renamed", "c"))
    assert first == copy != other
    (tmp_path / "c" / "config.json").write_text("[]")
    with pytest.raises(InputError, match=r"config\.json: "):
        digest_eagle(tmp_path / "c")
    (tmp_path / "c" / "config.json").unlink()
    with pytest.raises(InputError, match=r"no config\.json"):
        digest_eagle(tmp_path / "c")
    tensors = load_file(tmp_path / "a" / "eagle.safetensors")
    tensors["final_norm.weight"][0] = np.nan
    save_file(tensors, tmp_path / "a" / "eagle.safetensors")
    with pytest.raises(InputError, match=r"final_norm\.weight"):
        digest_eagle(tmp_path / "a")


def test_a_model_without_a_last_norm_is_refused(tmp_path: Path) -> None:
    model = dense_model(SHAPE)
    head = head_of(model)
    assert head is not None
    norm = head.x.producer()
    assert norm is not None
    head.x.replace_all_uses_with(norm.inputs[0])  # type: ignore[arg-type]
    with pytest.raises(UnsupportedError) as caught:
        make_draft_layer(model, tmp_path)
    assert "--eagle: there is no norm between the last layer and the head" in str(caught.value)
