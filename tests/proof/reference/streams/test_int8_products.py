"""Products of int8 with scales against float64."""

from __future__ import annotations

import ml_dtypes  # noqa: F401 - names bfloat16 to NumPy
import numpy as np
import pytest
import torch

from optc.proof.reference.streams.choice import has_int8, products_of
from optc.proof.reference.streams.int8_gram import multiply
from optc.proof.reference.streams.int8_products import Int8Products

pytestmark = pytest.mark.skipif(not has_int8(), reason="the CPU has no AVX512-VNNI")


def near_int8(rows: np.ndarray) -> np.ndarray:
    """Rows [N, K] rounded to 8 bits, a scale for each, in float64."""
    flat = rows.astype(np.float32)
    scales = np.maximum(np.abs(flat).max(axis=1, keepdims=True) / np.float32(127), 1e-38)
    return np.rint(flat / scales).astype(np.float64) * scales


@pytest.mark.parametrize("shape", [(2, 3, 40), (1, 1, 7), (1, 300, 257), (1, 3, 2)])
def test_results_are_exact_products_of_rounded_inputs(shape: tuple[int, ...]) -> None:
    rng = np.random.default_rng(0)
    x = rng.standard_normal(shape).astype(np.float32)
    weights = [rng.standard_normal((n, shape[-1])).astype(np.float32) for n in (1, 5, 64)]
    products = products_of("int8", 1)
    for w, result in zip(weights, products(x, list(map(products.weight, weights))), strict=True):
        flat = x.reshape(-1, shape[-1])
        assert (result.dtype, result.shape) == (np.float32, (*shape[:-1], len(w)))
        wanted = (near_int8(flat) @ near_int8(w).T).reshape(result.shape)
        np.testing.assert_allclose(result, wanted, rtol=1e-5, atol=1e-4)
        exact = (flat.astype(np.float64) @ w.T.astype(np.float64)).reshape(result.shape)
        sqnr_db = 10 * np.log10(np.sum(exact**2) / np.sum((exact - result) ** 2))
        assert sqnr_db > 30


@pytest.mark.parametrize(("m", "k", "n"), [(1, 1, 1), (3, 1, 5), (3, 2, 1), (1, 9, 2), (65, 33, 7)])
def test_integers_are_multiplied_exactly(m: int, k: int, n: int) -> None:
    rng = np.random.default_rng(2)
    a, b = (rng.integers(-127, 128, shape, np.int8) for shape in ((m, k), (n, k)))
    found = multiply(torch.from_numpy(a), torch.from_numpy(b).T).numpy()
    np.testing.assert_array_equal(found, a.astype(np.int32) @ b.T.astype(np.int32))


def test_values_in_bfloat16_are_taken_as_they_are() -> None:
    rng, products = np.random.default_rng(1), Int8Products(1)
    weights = [products.weight(rng.standard_normal((8, 96)).astype(np.float32))]
    x = rng.standard_normal((4, 96)).astype("bfloat16")
    x.flags.writeable = False
    wide = products(x.astype(np.float32), weights)[0]
    np.testing.assert_array_equal(products(x, weights)[0], wide)


def test_rows_and_weights_of_zeros_give_zeros() -> None:
    products = Int8Products(1)
    x, weight = np.zeros((3, 16), np.float32), np.zeros((2, 16), np.float32)
    x[1], weight[1] = 1, 1
    result = products(x, [products.weight(weight)])[0]
    np.testing.assert_allclose(result, [[0, 0], [0, 16], [0, 0]])
