"""The marker ``covering``: of a table of parameters, rows that show every value run in `make test`.

``@pytest.mark.covering`` on a test whose parameters are a product of several lists leaves as many
rows to `make test` as show each value of each list; ``covering("target", "dtype")`` those that show
each pair of these two as well. The others are ``long``.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from itertools import product

import pytest

#: Lists by their name, and which of its values a row has.
Row = Mapping[str, Hashable]


def mark_the_rest(items: Sequence[pytest.Item]) -> None:
    """Mark as ``long`` what `covering_rows` leaves out of tests that are marked ``covering``."""
    tables: dict[str, list[pytest.Function]] = {}
    for item in items:
        if item.get_closest_marker("covering") and not item.get_closest_marker("long"):
            assert isinstance(item, pytest.Function)
            tables.setdefault(item.nodeid.partition("[")[0], []).append(item)
    for table in tables.values():
        marker = table[0].get_closest_marker("covering")
        assert marker is not None
        chosen = covering_rows([row_of(item) for item in table], marker.args)
        for number, item in enumerate(table):
            if number not in chosen:
                item.add_marker(pytest.mark.long)


def row_of(item: pytest.Function) -> Row:
    """The values of a test by their identity; parameters that are given together are one list, by
    each of their names."""
    values = {name: id(value) for name, value in item.callspec.params.items()}
    row: dict[str, Hashable] = dict(values)
    for marker in item.iter_markers("parametrize"):
        names = marker.args[0] if marker.args else marker.kwargs["argnames"]
        if isinstance(names, str):
            names = [name.strip() for name in names.split(",")]
        row |= dict.fromkeys(names, tuple(values[name] for name in names))
    return row


def covering_rows(rows: Sequence[Row], together: Sequence[str] = ()) -> set[int]:
    """Numbers of a few rows that have every value that any has, and of the parameters ``together``
    every combination; of equally good rows the first."""

    def shown(row: Row) -> set[object]:
        return {*row.items(), tuple(row[name] for name in together)}

    chosen: set[int] = set()
    missing = set[object]().union(*map(shown, rows))
    while missing:
        best = max(range(len(rows)), key=lambda number: len(missing & shown(rows[number])))
        chosen.add(best)
        missing -= shown(rows[best])
    return chosen


def product_rows(**sizes: int) -> list[dict[str, int]]:
    """All rows of a product of lists of these sizes."""
    return [dict(zip(sizes, row, strict=True)) for row in product(*map(range, sizes.values()))]
