"""Operators that PyTorch's exporter does not translate, beside PyTorch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from optc.errors import UnsupportedError
from optc.importer.tensors.program import import_module
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


@pytest.mark.parametrize(
    ("function", "x"),
    [
        (places, FLOATS),
        (averages, FLOATS),
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
        np.testing.assert_allclose(value, one.numpy(), rtol=1e-6)


def test_a_divisor_of_cut_windows_is_refused() -> None:
    pool = torch.nn.AvgPool2d(2, ceil_mode=True, divisor_override=3)
    with pytest.raises(UnsupportedError, match="ceil_mode and divisor_override"):
        import_module(pool, "pool", (torch.zeros(1, 1, 3, 3),), {}, {})
