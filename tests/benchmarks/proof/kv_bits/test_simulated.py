"""A Llama with simulated keys and values: what a row sees, and that nothing else changes."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np

from benchmarks.proof.kv_bits.codes import Array, Codes, Float32, IntegerGroups
from benchmarks.proof.kv_bits.simulated import KVType, SimulatedKV, balance_of, hadamard
from benchmarks.proof.numpy_llama import FakeQuant, NumpyLlama


def test_a_row_keeps_its_latest_tokens_by_whole_blocks() -> None:
    keeps = KVType(Codes(2, "channel"), window=32, sinks=4).keeps(160)
    token = np.arange(160)
    for row in (40, 100, 159):
        oldest = (row + 1 - 32) // 32 * 32
        expected = ((token >= oldest) | (token < 4)) & (token <= row)
        np.testing.assert_array_equal(keeps[row], expected)


def test_no_row_sees_a_group_with_later_tokens() -> None:
    keeps = KVType(Codes(2, "channel", 16)).keeps(64)
    for row in range(64):
        whole = (row + 1) // 16 * 16
        assert not keeps[row, :whole].any()
        assert keeps[row, whole : row + 1].all()


def test_types_of_single_tokens_keep_the_window_alone() -> None:
    assert not KVType(IntegerGroups(), IntegerGroups()).keeps(40).any()
    assert KVType(IntegerGroups(), IntegerGroups(), window=8).keeps(40).sum(1).max() == 8


def test_bytes_count_the_window_in_its_own_bits() -> None:
    int2 = KVType(Codes(2, "channel"), Codes(2), window=128)
    assert int2.bits_per_value == 3
    kept = 128 + 15.5
    assert int2.bytes_of(1000, 8) == 2 * (kept * 8.5 + (1000 - kept) * 3)
    assert int2.bytes_of(100, 8) == 2 * 100 * 8.5  # no token is older than the window


def llama(folder: Path) -> dict[str, Array]:
    """Tensors of a tiny Llama, with its config in ``folder``."""
    config = {
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "rope_theta": 10000.0,
        "rms_norm_eps": 1e-5,
        "head_dim": 32,
    }
    (folder / "config.json").write_text(json.dumps(config))
    random = np.random.default_rng(1)
    shapes: dict[str, tuple[int, ...]] = {"embed_tokens": (50, 64)}
    for prefix in ("layers.0.", "layers.1."):
        shapes |= {
            f"{prefix}self_attn.{n}_proj": (d, 64)
            for n, d in zip("qkv", (128, 64, 64), strict=True)
        }
        shapes |= {f"{prefix}self_attn.o_proj": (64, 128), f"{prefix}mlp.down_proj": (64, 96)}
        shapes |= {f"{prefix}mlp.{name}_proj": (96, 64) for name in ("gate", "up")}
    tensors = {
        f"model.{name}.weight": random.normal(0, 0.2, shape).astype(np.float32)
        for name, shape in shapes.items()
    }
    norms = [f"layers.{i}.{n}_layernorm" for i in range(2) for n in ("input", "post_attention")]
    return tensors | {f"model.{n}.weight": np.ones(64, np.float32) for n in (*norms, "norm")}


def test_nothing_changes_where_nothing_is_rounded_or_all_is_kept(tmp_path: Path) -> None:
    tensors = llama(tmp_path)
    window = np.random.default_rng(0).integers(3, 50, 40)
    expected = NumpyLlama(tmp_path, FakeQuant(), tensors).logits(window)
    balance = balance_of(tmp_path, tensors, window[None])
    turned = KVType(turned_keys=True, turned_values=True, balanced=True)
    kept = KVType(Codes(2), Codes(2), window=64, kept=Float32())
    for kv in (turned, kept):
        found = SimulatedKV(tmp_path, kv, tensors, balance).logits(window)
        np.testing.assert_allclose(found, expected, atol=1e-4)
    lossy = SimulatedKV(tmp_path, KVType(Codes(2), Codes(2)), tensors).logits(window)
    assert np.abs(lossy - expected).max() > 0.1


def test_balanced_keys_are_centred_and_as_large_as_queries(tmp_path: Path) -> None:
    tensors = llama(tmp_path)
    window = np.random.default_rng(0).integers(3, 50, 40)
    balance = balance_of(tmp_path, tensors, window[None])
    prefix = "model.layers.0."
    plain = SimulatedKV(tmp_path, KVType(), tensors)
    x = plain.embedding[window]
    x = x / np.sqrt(np.mean(np.square(x), -1, keepdims=True) + 1e-5)
    q, k, _ = plain.heads(x, prefix)
    scaled = (k - balance.means[0]) / balance.scales[0]
    np.testing.assert_allclose(scaled.mean(0), 0, atol=1e-5)
    queries = q.reshape(40, 2, 2, -1) * balance.scales[0][:, None]
    pairs = [
        one.reshape(2, 2, 16).sum(1)
        for one in (np.square(scaled).mean(0), np.square(queries).mean((0, 2)))
    ]
    ratio = pairs[0] / pairs[1]
    np.testing.assert_allclose(ratio, ratio[:, :1].repeat(16, 1), rtol=1e-3)


def test_the_matrix_is_orthonormal() -> None:
    np.testing.assert_allclose(hadamard(64) @ hadamard(64).T, np.eye(64), atol=1e-6)
