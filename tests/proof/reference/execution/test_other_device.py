"""What `--device` sets, on a device with a name of its own: the CPU's, and the way of a GPU."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

from optc.ir.linear import find_linears
from optc.proof.reference.blockwise import BlockwiseReference, observe
from optc.proof.reference.execution.device import running_on
from optc.proof.reference.input_hessians import HessianObserver
from optc.proof.reference.streams.choice import has_int8, products_for, products_here, products_of
from optc.proof.reference.streams.gram import sum_of
from optc.proof.reference.variants.measure import measure_variants
from tests.support.dense_models import V, dense_model

#: PyTorch's other name of the CPU, which optc takes for another device.
OTHER = "cpu:0"


@pytest.fixture
def tokens() -> np.ndarray:
    return np.random.default_rng(1).integers(0, V, (3, 12), np.int32)


@pytest.fixture(params=["cpu", OTHER])
def device(request: pytest.FixtureRequest) -> Iterator[str]:
    with running_on(request.param):
        yield request.param


def logits(tokens: np.ndarray) -> np.ndarray:
    reference = BlockwiseReference(dense_model(2), 1)
    hidden = reference.hidden_states(tokens)
    return np.concatenate([reference.logits(hidden, tile) for tile in reference.tiles()], 1)


def test_references_and_variants_are_the_cpus(device: str, tokens: np.ndarray) -> None:
    found = logits(tokens)
    model = dense_model(2)
    first = find_linears(model)[0]
    zeros = first.weight.map_rows(np.zeros_like, first.weight.dtype)
    (kl,) = measure_variants(model, tokens, [{first.initializer: zeros}], 1)
    with running_on("cpu"):
        np.testing.assert_allclose(found, logits(tokens), atol=2e-5)
        (expected,) = measure_variants(model, tokens, [{first.initializer: zeros}], 1)
    assert kl == pytest.approx(expected, rel=1e-4)
    assert kl > 1e-4


def test_hessians_are_the_cpus(device: str, tokens: np.ndarray) -> None:
    found: list[np.ndarray] = []
    model = dense_model(1)
    inputs = {one.x for one in find_linears(model)}
    observe(model, tokens, [HessianObserver(inputs, lambda x, h: found.append(h))], 1)
    again: list[np.ndarray] = []
    with running_on("cpu"):
        observe(model, tokens, [HessianObserver(inputs, lambda x, h: again.append(h))], 1)
    assert len(found) == len(inputs)
    for mine, theirs in zip(found, again, strict=True):
        np.testing.assert_allclose(mine, theirs, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", ["float32", "bfloat16"])
def test_products_and_sums_are_exact_but_for_rounding(device: str, name: str) -> None:
    rng = np.random.default_rng(0)
    x, w = (rng.standard_normal(shape).astype(np.float32) for shape in ((2, 9, 33), (5, 33)))
    products = products_of(name, 1)
    (found,) = products(x, [products.weight(w)])
    near = {"rtol": 1e-5, "atol": 1e-5} if name == "float32" else {"rtol": 0.02, "atol": 0.2}
    np.testing.assert_allclose(found, x @ w.T, **near)
    flat = x.reshape(-1, 33)
    np.testing.assert_allclose(sum_of(flat, flat), flat.T @ flat, rtol=1e-4, atol=1e-5)


def test_another_device_multiplies_floats() -> None:
    with running_on(OTHER):
        assert products_here() == "bfloat16"
        assert not has_int8()
        assert products_for(4) == ("bfloat16", "bfloat16")
        assert products_here(frozenset()) == "float32"  # of a CPU that is named
