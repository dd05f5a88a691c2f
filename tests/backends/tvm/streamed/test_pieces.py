"""Weights cut into pieces: every page in one piece at most, experts apart."""

from __future__ import annotations

import mmap
from itertools import pairwise

import numpy as np
import pytest

from optc.backends.tvm.streamed.pieces import CHUNK, LEAST_EXPERT, cut, experts_of
from optc.backends.tvm.weights.weights_file import Placed
from optc.proof.roofline.costs import KernelCost, StepCosts

PAGE = mmap.PAGESIZE


def placed(name: str, rows: int, columns: int, offset: int, *, own: bool = False) -> Placed:
    return Placed(name, "uint8", (rows, columns), offset, own)


def test_pages_of_neighbours_are_in_one_piece() -> None:
    """Tensors that do not begin with a page: the page between two belongs to the second."""
    tensors = [placed("a", 1, 5 * PAGE + 64, 0), placed("b", 1, 3 * PAGE, 5 * PAGE + 64)]
    pieces = cut(tensors, 0)
    assert pieces.starts.tolist() == [0, 5 * PAGE]
    assert pieces.sizes.tolist() == [5 * PAGE, 3 * PAGE]
    assert [bounds.tolist() for bounds in pieces.bounds] == [[0, 1], [1, 2]]


def test_large_tensors_are_many_pieces() -> None:
    pieces = cut([placed("a", 1, 2 * CHUNK + PAGE, 64)], 0)
    assert len(pieces.sizes) == 3
    assert pieces.sizes.max() <= CHUNK
    assert pieces.sizes.sum() == 2 * CHUNK + PAGE
    ends = (pieces.starts + pieces.sizes).tolist()
    assert ends[:-1] == pieces.starts.tolist()[1:]
    assert pieces.of([0], None).tolist() == [0, 1, 2]
    assert not pieces.by_expert(0)


def test_a_tensor_within_a_page_has_no_piece() -> None:
    pieces = cut([placed("a", 1, 128, 64), placed("b", 1, PAGE, 4096)], 0)
    assert pieces.of([0], None).size == 0
    assert pieces.of([0, 1], None).tolist() == [0]


@pytest.mark.parametrize("name", ["up.experts.values", "up.experts"])
def test_experts_have_pieces_of_their_own(name: str) -> None:
    each = LEAST_EXPERT + 100
    pieces = cut([placed("a", 1, 2 * PAGE, 0), placed(name, 8, each, 2 * PAGE)], 8)
    assert [pieces.by_expert(tensor) for tensor in (0, 1)] == [False, True]
    chosen = pieces.of([0, 1], np.array([2, 7]))
    assert chosen.tolist() == [0, 3, 8]
    for expert, piece in ((2, 3), (7, 8)):
        start = 2 * PAGE + expert * each
        assert start - PAGE < pieces.starts[piece] <= start
        assert start + each - PAGE < pieces.starts[piece] + pieces.sizes[piece] <= start + each
    assert pieces.of([1], None).tolist() == list(range(1, 9))
    spans = sorted(zip(pieces.starts.tolist(), pieces.sizes.tolist(), strict=True))
    assert all(start + size <= after for (start, size), (after, _) in pairwise(spans))


@pytest.mark.parametrize(
    ("name", "rows", "columns", "experts"),
    [
        ("up.experts.scales", 8, LEAST_EXPERT - 1, 8),
        ("up.experts.values", 9, LEAST_EXPERT, 8),
        ("up.experts.values", 8, LEAST_EXPERT, 0),
        ("up.packed.values", 8, LEAST_EXPERT, 8),
        ("experts.up.packed", 8, LEAST_EXPERT, 8),
    ],
)
def test_other_tensors_are_wholes(name: str, rows: int, columns: int, experts: int) -> None:
    assert not cut([placed(name, rows, columns, 0)], experts).by_expert(0)


def test_files_are_told_apart() -> None:
    pieces = cut([placed("a", 1, PAGE, 0), placed("b", 1, PAGE, 0, own=True)], 0)
    assert pieces.files.tolist() == [0, 1]
    assert pieces.starts.tolist() == [0, 0]


def test_the_number_of_experts_is_that_of_the_costs() -> None:
    def costs(*kinds: str) -> StepCosts:
        cost = KernelCost(1, "int8", dict.fromkeys(kinds, 1.0), {})
        return StepCosts("int8", {"k": cost})

    assert experts_of(costs("1", "T:8of128", "R:8of128")) == 128
    assert experts_of(costs("1", "kv0")) == 0
    assert experts_of(costs("T:8of128", "T:2of16")) == 0
    assert experts_of(None) == 0
