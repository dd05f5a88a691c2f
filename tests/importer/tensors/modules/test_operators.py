"""Operators that PyTorch's exporter does not translate, beside PyTorch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from optc.errors import UnsupportedError
from optc.importer.tensors.program import import_module
from optc.system.sources.dim import Dim
from tests.support.ragged import run

FLOATS = torch.tensor([[1.5, -2.0, 1.5, 0.5], [-1.0, 3.0, 3.0, 3.0], [0.0, -0.0, 2.0, -3.0]])


class Of(torch.nn.Module):
    """A function of a tensor."""

    def __init__(self, function: Callable[[torch.Tensor], Any]) -> None:
        super().__init__()
        self.function = function

    def forward(self, x: torch.Tensor) -> Any:
        return self.function(x)


def products(x: torch.Tensor) -> Any:
    return x.prod(), x.prod(1), x.prod(0, keepdim=True), x.prod(-1, dtype=torch.float64)


def orders(x: torch.Tensor) -> Any:
    down = torch.sort(x, dim=0, descending=True, stable=True)
    return *torch.sort(x, stable=True), *down, torch.argsort(x, dim=-1, stable=True)


def distances(x: torch.Tensor) -> Any:
    others = torch.stack([x[:2] + 1, x[:2] * 2])
    return (
        *(torch.cdist(x, x[:2] + 1, p=p) for p in (1.0, 2.0, torch.inf)),
        torch.cdist(x, others),
    )


def greatest(x: torch.Tensor) -> Any:
    """Of windows that divide the sizes, that overlap, and that are longer than the input."""
    plane, functional = x.reshape(1, 2, 6, 7), torch.nn.functional
    return (
        *functional.adaptive_max_pool2d(plane, (4, 3), return_indices=True),
        functional.adaptive_max_pool2d(plane, (3, 7)),
        functional.adaptive_max_pool2d(plane[0], (None, 9)),
        *functional.adaptive_max_pool1d(plane[0], 4, return_indices=True),
        *functional.adaptive_max_pool3d(plane[None], (1, 4, 5), return_indices=True),
    )


def ranks(x: torch.Tensor) -> Any:
    distinct = x + torch.arange(4) / 8
    return (
        *torch.median(distinct, -1),
        *torch.median(distinct, 0, keepdim=True),
        *torch.kthvalue(distinct, 2),
        *torch.kthvalue(distinct, 3, 0, keepdim=True),
        torch.cumprod(x, -1),
        torch.cumprod(x, 0),
    )


def inverses(x: torch.Tensor) -> Any:
    return torch.linalg.inv(x), torch.inverse(x[0]), torch.linalg.inv(x.double())


def averages(x: torch.Tensor) -> Any:
    plane, pool = x.reshape(1, 1, *x.shape), torch.nn.functional.avg_pool2d
    return (
        pool(plane, 2),
        pool(plane, (2, 3), stride=1, divisor_override=5),
        pool(plane, 2, stride=2, padding=1, count_include_pad=False),
        pool(plane, 2, stride=2, padding=1, count_include_pad=False, divisor_override=3),
        pool(plane, 2, stride=2, padding=1, ceil_mode=True),
        torch.nn.functional.avg_pool3d(plane[None], (1, 2, 2), divisor_override=7),
    )


def places(x: torch.Tensor) -> Any:
    rows = torch.sort(x, dim=-1).values
    return (
        torch.bucketize(x, rows[0]),
        torch.bucketize(x, rows[0], right=True, out_int32=True),
        torch.searchsorted(rows, x),
        torch.searchsorted(rows, x, side="right"),
        torch.searchsorted(rows[1], x[0, :2], right=True),
        torch.hypot(x, x.flip(0)),
        torch.hypot(x * 1e30, x.flip(0) * 1e30),
        torch.hypot(x / 0, x),
        torch.bucketize(x / x, rows[0]),  # 0 / 0 is no number
        torch.bucketize(x / x, rows[0], right=True),
    )


def logarithms(x: torch.Tensor) -> Any:
    large, functional = x * 100, torch.nn.functional
    return (
        functional.logsigmoid(x),
        functional.logsigmoid(large),
        torch.logaddexp(x, x.flip(0)),
        torch.logaddexp(large, large.flip(0)),
        torch.logaddexp(x / 0, x / 0),
    )


def halves(x: torch.Tensor) -> Any:
    """Computed in float32, and of the type of their operands."""
    return x.sum(1), x.cumsum(0), x.sum(), x.sum(1).abs(), x.sum(0, dtype=torch.float32)


def means(x: torch.Tensor) -> Any:
    """Of what has one place, with and without the value that is there."""
    places = (x > 0).long()
    return (
        torch.ones_like(x).scatter_reduce(1, places, x, "mean"),
        torch.ones_like(x).scatter_reduce(0, places, x, "mean", include_self=False),
        torch.ones_like(x).scatter_reduce(1, places, x, "amax", include_self=False),
    )


def attention(x: torch.Tensor) -> Any:
    """Over two, three and five axes."""
    attend = torch.nn.functional.scaled_dot_product_attention
    many = torch.stack([x, x + 1, x * 2, x - 1]).reshape(2, 2, 1, *x.shape)
    seen = torch.ones(len(x), len(x), dtype=torch.bool).tril()
    return (
        attend(x, x, x + 1),
        attend(x[None], x[None], x[None, :, :2], is_causal=True),
        attend(x[None], x[None], x[None], attn_mask=seen[None]),
        attend(x[None], x[None], x[None], attn_mask=seen.float(), scale=0.3),
        attend(many, many, many[..., :3], attn_mask=seen),
    )


@pytest.mark.parametrize(
    ("function", "x"),
    [
        (logarithms, FLOATS),
        (halves, FLOATS.half()),
        (means, FLOATS),
        (attention, FLOATS),
        (places, FLOATS),
        (averages, FLOATS),
        (ranks, FLOATS),
        (greatest, torch.randn(84, generator=torch.Generator().manual_seed(0)).round()),
        (inverses, torch.eye(3).repeat(2, 1, 1) * 4 + FLOATS[:, :3]),
        (products, FLOATS),
        (products, FLOATS.int()),
        (orders, FLOATS),
        (orders, FLOATS.long()),
        (distances, FLOATS),
    ],
)
def test_pytorch_gives_the_same(function: Callable[[torch.Tensor], Any], x: torch.Tensor) -> None:
    found = import_module(Of(function), "of", (x,), {}, {})
    wanted = function(x)
    for value, one in zip(run(found.model, {"x": x.numpy()}), wanted, strict=True):
        assert value.dtype == one.numpy().dtype
        np.testing.assert_allclose(value, one.numpy(), rtol=1e-6, atol=1e-9)


def test_windows_of_sizes_that_differ_from_call_to_call() -> None:
    pool = Of(lambda x: torch.nn.functional.adaptive_max_pool2d(x, (3, 4)))
    dynamic = {"x": {2: Dim("height", 2, 64), 3: Dim("width", 2, 64)}}
    found = import_module(pool, "pool", (torch.zeros(1, 2, 7, 9),), {}, dynamic)
    for height, width in ((7, 9), (12, 8), (2, 64), (3, 5)):
        x = torch.randn(1, 2, height, width, generator=torch.Generator().manual_seed(height))
        np.testing.assert_array_equal(run(found.model, {"x": x.numpy()})[0], pool(x).numpy())


@pytest.mark.parametrize("count", [(3, 4), (None, 2), (1, 5)])
def test_averages_of_windows_of_sizes_that_differ(count: tuple[int | None, int]) -> None:
    pool = torch.nn.AdaptiveAvgPool2d(count)
    dynamic = {"input": {2: Dim("height", 2, 64), 3: Dim("width", 2, 64)}}
    found = import_module(pool, "pool", (torch.zeros(1, 2, 6, 8),), {}, dynamic)
    for height, width in ((6, 8), (12, 10), (2, 64), (3, 5)):
        x = torch.randn(1, 2, height, width, generator=torch.Generator().manual_seed(height))
        given = run(found.model, {"input": x.numpy()})[0]
        np.testing.assert_allclose(given, pool(x).numpy(), rtol=1e-5, atol=1e-6)


def test_averages_of_three_axes_and_of_infinities() -> None:
    x = torch.arange(60.0).reshape(1, 1, 3, 4, 5)
    x[0, 0, 0, 0, 0] = torch.inf
    pool = torch.nn.AdaptiveAvgPool3d((2, 3, 4))
    found = import_module(pool, "pool", (x,), {}, {})
    np.testing.assert_allclose(run(found.model, {"input": x.numpy()})[0], pool(x).numpy(), 1e-6)


def test_an_operator_without_a_translation_is_named() -> None:
    with pytest.raises(
        UnsupportedError, match=r"no ONNX for the operator aten\._linalg_svd"
    ) as error:
        import_module(Of(torch.linalg.svdvals), "svd", (torch.eye(3),), {}, {})
    assert "compute it before or after" in error.value.hint


def test_a_divisor_of_cut_windows_is_refused() -> None:
    pool = torch.nn.AvgPool2d(2, ceil_mode=True, divisor_override=3)
    with pytest.raises(UnsupportedError, match="ceil_mode and divisor_override"):
        import_module(pool, "pool", (torch.zeros(1, 1, 3, 3),), {}, {})
