"""The rows of a table that `make test` runs show every value, and every pair that is asked for."""

from __future__ import annotations

from itertools import product

import pytest

from tests.support.cost.covering import covering_rows, product_rows


@pytest.mark.parametrize("sizes", [{"a": 2, "b": 4, "c": 3}, {"a": 1}, {"a": 5, "b": 5}])
def test_every_value_is_in_few_rows(sizes: dict[str, int]) -> None:
    rows = product_rows(**sizes)
    chosen = [rows[number] for number in covering_rows(rows)]
    for name, size in sizes.items():
        assert {row[name] for row in chosen} == set(range(size))
    assert len(chosen) == max(sizes.values())


def test_pairs_that_belong_together_are_all_there() -> None:
    rows = product_rows(target=2, kind=3, width=4)
    chosen = [rows[number] for number in covering_rows(rows, ("target", "kind"))]
    assert {(row["target"], row["kind"]) for row in chosen} == set(product(range(2), range(3)))
    assert {row["width"] for row in chosen} == set(range(4))
    assert len(chosen) == 6


def test_lists_that_are_no_product_keep_what_only_one_row_has() -> None:
    rows = [{"a": 0, "b": 0}, {"a": 0, "b": 1}, {"a": 1, "b": 1}]
    assert covering_rows(rows) == {0, 2}


@pytest.mark.covering
@pytest.mark.parametrize("b", range(3))
@pytest.mark.parametrize(("a", "also"), [(0, 1), (1, 2)])
def test_what_is_left_out_is_long(
    a: int, also: int, b: int, request: pytest.FixtureRequest
) -> None:
    """Parameters that are given together are one list."""
    assert (a, also) in [(0, 1), (1, 2)]
    long = request.node.get_closest_marker("long") is not None
    assert long == ((a, b) not in [(0, 0), (1, 1), (0, 2)])
