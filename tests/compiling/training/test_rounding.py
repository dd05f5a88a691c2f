"""Straight-through rounding: values of the grid, and gradients by finite differences."""

from __future__ import annotations

import pytest
import torch

from optc.compiling.training.rounding import Grid, RoundToGrid

N, G, SIZE = 3, 2, 8


def grid(kind: str) -> Grid:
    random = torch.Generator().manual_seed(3)
    if kind == "per channel":
        return Grid(torch.rand(N, 1, 1, generator=random) + 0.1, None, None, -127, 127)
    if kind == "float":
        zeros = torch.full((N, G, 1), 7.0)
        return Grid(torch.rand(N, G, 1, generator=random) * 0.2 + 0.05, None, zeros, 0, 15)
    zeros = torch.randint(20, 90, (N, G, 1), generator=random).float()
    integers = torch.randint(20, 40, (N, G, 1), generator=random).float()
    return Grid(torch.rand(N, 1, 1, generator=random) * 0.02 + 0.01, integers, zeros, 0, 3)


KINDS = ("per channel", "float", "integer")


def rows_of(one: Grid) -> torch.Tensor:
    random = torch.Generator().manual_seed(5)
    steps = torch.rand(N, G, SIZE, generator=random) * (one.most - one.least + 2) + one.least - 1
    shape = (N, 1, G * SIZE) if one.scales.shape[1] == 1 and one.zeros is None else (N, G, SIZE)
    return one.values(steps.reshape(shape))


@pytest.mark.parametrize("kind", KINDS)
def test_values_are_on_the_grid_and_the_nearest(kind: str) -> None:
    one = grid(kind)
    rows = rows_of(one)
    got = RoundToGrid.apply(rows, torch.zeros_like(one.scales), None, one)
    codes = one.codes(rows)
    assert torch.equal(got, one.values(codes))
    assert int(codes.min()) >= one.least
    assert int(codes.max()) <= one.most
    for step in (-1, 1):  # no neighbour is nearer
        other = (codes + step).clamp(one.least, one.most)
        nearer = (one.values(other) - rows).abs() < (got - rows).abs() - 1e-5
        assert not nearer.any()


@pytest.mark.parametrize("kind", KINDS)
def test_gradients_are_those_of_rounding_taken_as_the_identity(kind: str) -> None:
    """The reference is autograd over the formula, with round(x) = x + (round(x) - x) constant."""
    one = grid(kind)
    rows = rows_of(one)
    log_c = torch.zeros_like(one.scales, requires_grad=True)
    log_s = None if one.integers is None else torch.zeros_like(one.integers, requires_grad=True)
    taken = rows.clone().requires_grad_()
    weights = torch.randn(rows.shape, generator=torch.Generator().manual_seed(9))
    (RoundToGrid.apply(taken, log_c, log_s, one) * weights).sum().backward()

    free = rows.clone().requires_grad_()
    free_c = torch.zeros_like(one.scales, requires_grad=True)
    free_s = None if one.integers is None else torch.zeros_like(one.integers, requires_grad=True)
    scales = one.scales * free_c.exp()
    x = free / scales
    x = x if one.zeros is None else x + one.zeros
    integers = None if one.integers is None or free_s is None else one.integers * free_s.exp()
    x = x if integers is None else x / integers
    straight = x + (x.round() - x).detach()
    q = straight.clamp(one.least, one.most)
    value = q if integers is None else q * integers
    value = (value if one.zeros is None else value - one.zeros) * scales
    (value * weights).sum().backward()
    torch.testing.assert_close(taken.grad, free.grad)
    torch.testing.assert_close(log_c.grad, free_c.grad, rtol=1e-4, atol=1e-5)
    if log_s is not None and free_s is not None:
        torch.testing.assert_close(log_s.grad, free_s.grad, rtol=1e-4, atol=1e-5)
