"""Products of linear layers against float64."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

from optc.proof.reference.streams.choice import products_for, products_here, products_of
from optc.proof.reference.streams.floats import as_float32, put
from optc.proof.reference.streams.products import BFloat16Products, Float32Products, Products


def near_bfloat16(values: np.ndarray) -> np.ndarray:
    return values.astype(ml_dtypes.bfloat16).astype(np.float64)


@pytest.mark.parametrize("shape", [(2, 3, 40), (1, 1, 7), (1, 130, 257)])
@pytest.mark.parametrize("name", ["float32", "bfloat16"])
def test_results_are_exact_products_of_rounded_inputs_rounded_once(
    name: str, shape: tuple[int, ...]
) -> None:
    rng = np.random.default_rng(0)
    x, weights = (
        rng.standard_normal(shape).astype(np.float32),
        [rng.standard_normal((n, shape[-1])).astype(np.float32) for n in (5, 64)],
    )
    products = products_of(name, 1)
    results = products(x, [products.weight(w) for w in weights])
    ulp = 2.0**-7 if name == "bfloat16" else 0.0
    for w, result in zip(weights, results, strict=True):
        exact = x.astype(np.float64), w.astype(np.float64)
        given = exact if name == "float32" else (near_bfloat16(x), near_bfloat16(w))
        wanted = given[0] @ given[1].T
        assert result.dtype == np.float32
        assert result.shape == (*shape[:-1], len(w))
        np.testing.assert_allclose(result, wanted, rtol=1e-5 + ulp / 2, atol=2e-5)


def kept_as(dtype: np.dtype[Any], values: np.ndarray) -> np.ndarray:
    kept = np.empty(values.shape, dtype)
    put(kept, values)
    return kept


@pytest.mark.parametrize("products", [Float32Products(), BFloat16Products(1)])
def test_values_kept_as_its_type_give_the_same_bits(products: Products) -> None:
    rng = np.random.default_rng(1)
    x = rng.standard_normal((4, 96)).astype(np.float32)
    weights = [products.weight(rng.standard_normal((8, 96)).astype(np.float32))]
    kept = kept_as(products.dtype, x)
    kept.flags.writeable = False
    np.testing.assert_array_equal(products(x, weights)[0], products(kept, weights)[0])


def test_rounding_is_to_nearest_even_and_back_without_loss() -> None:
    values = np.random.default_rng(2).standard_normal((3, 50)).astype(np.float32)
    values[0, :3] = 1 + 2.0**-8, 1 + 3 * 2.0**-8, 0  # halves between two values
    near = kept_as(np.dtype(ml_dtypes.bfloat16), values)
    np.testing.assert_array_equal(near, values.astype(ml_dtypes.bfloat16))
    np.testing.assert_array_equal(as_float32(near[:, ::2]), near[:, ::2].astype(np.float32))
    assert as_float32(values) is values


def test_the_best_products_of_a_cpu_are_taken() -> None:
    narrow, bytes_ = frozenset({"avx2", "avx512_bf16"}), frozenset({"avx2", "avx512_vnni"})
    assert products_here(narrow) == "bfloat16"
    assert products_here(bytes_) == "float32"
    assert [
        products_for(4, one) for one in (frozenset[str](), narrow, bytes_, narrow | bytes_)
    ] == [
        ("float32", "float32"),
        ("bfloat16", "bfloat16"),
        ("float32", "int8"),
        ("bfloat16", "int8"),
    ]


def test_weights_of_many_bits_are_not_rounded_to_int8() -> None:
    assert products_for(5, frozenset({"avx512_vnni"})) == ("float32", "float32")
