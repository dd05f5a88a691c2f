"""The oracle of int8: products are rounded as NumPy says, whoever writes them."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from benchmarks.families.fake_quantization import Int8Products, in_groups, rounded, router_weights
from benchmarks.families.int8_loss import mean_kl

SEED = torch.Generator().manual_seed(0)


def random(*shape: int) -> Tensor:
    return torch.randn(shape, generator=SEED)


def by_numpy(x: Tensor, axis: int) -> np.ndarray:
    array = x.numpy().astype(np.float64)
    scale = np.abs(array).max(axis=axis, keepdims=True) / 127
    return np.rint(array / scale) * scale


def test_rows_and_columns_have_their_own_scales() -> None:
    x = random(3, 5)
    for axis in (0, 1):
        assert np.allclose(rounded(x, axis).numpy(), by_numpy(x, axis), atol=1e-6)
    assert not rounded(torch.zeros(2, 3), -1).any()


def test_weights_by_output_and_activations_by_token() -> None:
    layer, x = nn.Linear(8, 6), random(2, 3, 8)
    with torch.no_grad(), Int8Products(layer):
        found = layer(x)
        again = torch.matmul(x, layer.weight.t()) + layer.bias
        added = torch.addmm(layer.bias, x[0], layer.weight.t())
    weight, bias = by_numpy(layer.weight.detach(), 1), layer.bias.detach().numpy()
    expected = by_numpy(x, -1) @ weight.T + bias
    assert np.allclose(found.numpy(), expected, atol=1e-5)
    assert np.allclose(again.numpy(), expected, atol=1e-5)
    assert np.allclose(added.numpy(), expected[0], atol=1e-5)


@pytest.mark.parametrize("axis", [-1, -2])
def test_weights_of_4_bits_in_groups(axis: int) -> None:
    weight = random(64, 64)
    columns = np.moveaxis(weight.numpy().astype(np.float64), axis, 0)
    expected = np.empty_like(columns)
    for start in (0, 32):
        part = columns[start : start + 32]
        least, step = part.min(0), np.ptp(part, axis=0) / 15
        expected[start : start + 32] = np.rint((part - least) / step) * step + least
    found = in_groups(weight, axis).numpy()
    assert np.allclose(found, np.moveaxis(expected, 0, axis), atol=1e-5)
    layer, x = nn.Linear(64, 8, bias=False), random(3, 64)
    with torch.no_grad(), Int8Products(layer, weights=in_groups):
        product = layer(x)
    by_hand = by_numpy(x, -1) @ in_groups(layer.weight.detach(), -1).numpy().T
    assert np.allclose(product.numpy(), by_hand, atol=1e-4)


def test_a_layer_that_stays_float() -> None:
    layer, x = nn.Linear(8, 6), random(3, 8)
    with torch.no_grad():
        with Int8Products(layer, [layer.weight]):
            found = layer(x)
        assert torch.equal(found, layer(x))


@pytest.mark.parametrize("merged", [False, True])
def test_attention_rounds_queries_keys_and_values(merged: bool) -> None:
    q, k, v = random(2, 4, 5, 8), random(2, 4, 5, 8), random(2, 4, 5, 8)
    if merged:
        q, k, v = (x.flatten(0, 1) for x in (q, k, v))
    product = torch.bmm if merged else torch.matmul
    with Int8Products(nn.Linear(1, 1)):
        scores = product(q, k.transpose(-1, -2))
        weights = torch.softmax(scores, -1)
        found = product(weights, v)
    expected = by_numpy(q, -1) @ np.swapaxes(by_numpy(k, -1), -1, -2)
    assert np.allclose(scores.numpy(), expected, atol=1e-4)
    assert np.allclose(found.numpy(), weights.numpy() @ by_numpy(v, -1), atol=1e-4)


def test_embeddings_by_row() -> None:
    table = nn.Embedding(5, 8)
    with torch.no_grad(), Int8Products(table):
        found = table(torch.tensor([1, 4]))
    assert np.allclose(found.numpy(), by_numpy(table.weight.detach(), 1)[[1, 4]], atol=1e-6)


class Routed(nn.Module):
    """A layer, and one that chooses."""

    def __init__(self) -> None:
        super().__init__()
        self.layer, self.gate = nn.Linear(8, 8), nn.Linear(8, 4)

    def forward(self, input_ids: Tensor, use_cache: bool = False) -> Tensor:
        x = self.layer(torch.nn.functional.one_hot(input_ids, 8).float())
        return torch.softmax(self.gate(x), -1).topk(2).values


def test_the_layer_that_chooses_is_found() -> None:
    model = Routed()
    (found,) = router_weights(model, torch.zeros(1, 4, dtype=torch.int64))
    assert found is model.gate.weight


def test_kl_of_logits() -> None:
    p, q = np.array([[0.0, np.log(3)]], np.float32), np.zeros((1, 2), np.float32)
    expected = 0.25 * np.log(0.25 / 0.5) + 0.75 * np.log(0.75 / 0.5)
    assert np.isclose(mean_kl(p, q), expected)
    assert mean_kl(p, p + 5) == pytest.approx(0, abs=1e-7)
