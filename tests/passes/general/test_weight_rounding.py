"""Weights by columns beside all other roundings of small ones, and the windows that they see."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import onnx_ir as ir
import pytest

from optc.passes.general.value_ranges import Range
from optc.passes.general.weight_rounding import Hessians, rounded_by_columns, windows


def node_of(op_type: str, weight: np.ndarray | None, **attributes: Any) -> ir.Node:
    x = ir.Value(name="x")
    w = ir.Value(name="w", const_value=None if weight is None else ir.tensor(weight, name="w"))
    return ir.node(op_type, [x, w], attributes, outputs=[ir.Value(name="y")])


def loss(weight: np.ndarray, integers: np.ndarray, scales: np.ndarray, rows: np.ndarray) -> float:
    return float(np.square(rows @ (weight - integers * scales[:, None]).T).sum())


def test_inputs_that_do_not_go_together_leave_plain_rounding() -> None:
    weight = np.array([[0.4, -1.6, 9.0, -9.0], [2.5, 1.0, 0.1, 3.3]])
    found = rounded_by_columns(weight, np.array([1.0, 0.5]), np.eye(4)[None], 7)
    assert found.dtype == np.int8
    assert found.tolist() == [[0, -2, 7, -7], [5, 2, 0, 7]]


def test_inputs_that_are_all_zero_leave_plain_rounding() -> None:
    found = rounded_by_columns(np.array([[0.4, -1.6]]), np.array([1.0]), np.zeros((1, 2, 2)), 7)
    assert found.tolist() == [[0, -2]]


@pytest.mark.parametrize("seed", range(5))
def test_errors_are_made_good_by_later_columns(seed: int) -> None:
    """Better than to the nearest, and little worse than the best of all roundings."""
    random = np.random.default_rng(seed)
    rows = random.standard_normal((60, 2)) @ random.standard_normal((2, 4))  # they go together
    weight, scales = random.standard_normal((3, 4)), np.full(3, 0.3)
    found = rounded_by_columns(weight, scales, (rows.T @ rows)[None], 100)
    nearest = np.rint(weight / scales[:, None])
    own = loss(weight, found, scales, rows)
    assert own < loss(weight, nearest, scales, rows)
    best = sum(
        min(
            loss(weight[[row]], np.floor(weight[[row]] / 0.3) + up, scales[:1], rows)
            for up in itertools.product((0, 1), repeat=4)
        )
        for row in range(3)
    )
    assert own < 3 * best + 0.05


def test_each_group_has_its_own_inputs() -> None:
    random = np.random.default_rng(1)
    rows = [random.standard_normal((30, 1)) @ np.ones((1, 3)), np.eye(3)]
    hessian = np.stack([one.T @ one for one in rows])
    weight, scales = random.standard_normal((4, 3)), np.full(4, 0.25)
    found = rounded_by_columns(weight, scales, hessian, 100)
    for group in range(2):
        part = slice(2 * group, 2 * group + 2)
        alone = rounded_by_columns(weight[part], scales[part], hessian[group : group + 1], 100)
        assert found[part].tolist() == alone.tolist()
    assert found[2:].tolist() == np.rint(weight[2:] / 0.25).tolist()


def test_a_weight_is_rounded_once_for_all_copies_of_its_graph() -> None:
    node = node_of("MatMul", np.ones((2, 2), np.float32))
    made = Hessians({}, {node: np.eye(2)[None]})
    weight, scales = np.array([[0.6, 2.2]]), np.array([1.0])
    first = made.integers(node, weight, scales, 7)
    copy = node_of("MatMul", np.ones((2, 2), np.float32))
    assert first.tolist() == [[1, 2]]
    assert made.integers(copy, weight, scales, 7) is first


@pytest.mark.parametrize(("count", "seen"), [(1023, 1023), (1024, 1024), (1025, 1024)])
def test_of_many_rows_some_are_drawn_once_each(count: int, seen: int) -> None:
    x = np.arange(2 * count, dtype=np.float32).reshape(1, count, 2)
    found = windows(node_of("MatMul", None), x, np.random.default_rng(0))
    assert found.shape == (1, seen, 2)
    firsts = set(found[0, :, 0].tolist())
    assert len(firsts) == seen
    assert firsts <= set(x[0, :, 0].tolist())


@pytest.mark.parametrize("kind", ["SAME_UPPER", "SAME_LOWER"])
def test_padding_that_is_not_stated_keeps_the_size(kind: str) -> None:
    node = node_of("Conv", np.ones((1, 1, 3, 2), np.float32), auto_pad=kind)
    x = np.arange(1.0, 13, dtype=np.float32).reshape(1, 1, 3, 4)
    found = windows(node, x, np.random.default_rng(0))
    assert found.shape == (1, 12, 6)
    inside = [row for row in found[0].tolist() if 0 not in row]
    assert inside == [[1, 2, 5, 6, 9, 10], [2, 3, 6, 7, 10, 11], [3, 4, 7, 8, 11, 12]]


def test_a_convolution_needs_its_weight() -> None:
    with pytest.raises(ValueError, match="a convolution without a weight"):
        windows(node_of("Conv", None), np.ones((1, 1, 3)), np.random.default_rng(0))


def test_inputs_are_rounded_as_engines_round_them() -> None:
    made = Hessians({"x": Range(-1.0, 1.55), "flat": Range(0.0, 0.0)})
    found = made._rounded(np.array([-5.0, -0.004, 0.016, 9.0]), "x")
    assert found.tolist() == pytest.approx([-1.0, 0.0, 0.02, 1.55])
    assert made._rounded(np.array([3.0]), "flat").tolist() == [0.0]


def test_windows_count_until_there_are_enough() -> None:
    node = node_of("MatMul", None)
    made, source = Hessians({"x": Range(0.0, 255.0)}), np.random.default_rng(0)
    ones = np.ones((1024, 1), np.float32)
    for _ in range(20):
        made._add(node, ones, "x", source)
    assert made.found[node].tolist() == [[[1 << 14]]]
