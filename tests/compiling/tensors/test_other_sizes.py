"""The graph of a module with dynamic dimensions is compared with it at other sizes, too."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from optc.compiling.tensors.other_sizes import check_sizes, resized
from optc.errors import EngineError, InputError, UnsupportedError
from optc.importer.tensors.imported import ImportedTensors
from optc.importer.tensors.modules.operators import TRANSLATIONS
from optc.importer.tensors.program import import_module
from optc.system.sources.dim import Dim
from tests.support.ragged import run

Tensors = Mapping[str, Any]
ROWS = {"input": {0: Dim("rows", 1, 64)}}


@pytest.fixture(scope="module")
def imported() -> ImportedTensors:
    """An identity over x f32[rows, 4], whose source notes the sizes that it is asked for."""
    return import_module(torch.nn.Identity(), "same", (torch.rand(3, 4) + 1,), {}, ROWS)


def asked(
    imported: ImportedTensors,
    graph: Callable[[Any], Any] = lambda x: x,
    source: Callable[[Any], Any] = lambda x: x,
) -> list[int]:
    """Rows of the calls of a source, where its graph computes ``graph``."""
    seen = []

    def reference(sample: Tensors) -> Tensors:
        seen.append(len(sample["input"]))
        return {"output": source(sample["input"])}

    check_sizes(replace(imported, reference=reference), lambda one: {"output": graph(one["input"])})
    return seen


def test_one_larger_and_one_smaller_size_are_compared(imported: ImportedTensors) -> None:
    assert asked(imported) == [4, 1]


def test_sizes_that_the_module_does_not_take_are_passed_over(imported: ImportedTensors) -> None:
    def source(x: Any) -> Any:
        if len(x) % 3:
            raise InputError("rows by three alone")
        return x

    assert asked(imported, source=source) == [4, 6, 1, 1, 1]


@pytest.mark.parametrize(
    ("graph", "said"),
    [
        (lambda x: x * len(x) / 3, r"other values than the module where rows is 4: .* by 0\.33"),
        (lambda x: x[:3], r"the shape \[3, 4\] where rows is 4, and the module \[4, 4\]"),
        (lambda x: x if len(x) > 1 else x[0], r"\[4\] where rows is 1, and the module \[1, 4\]"),
    ],
)
def test_what_differs_is_refused(imported: ImportedTensors, graph: Any, said: str) -> None:
    with pytest.raises(UnsupportedError, match=said):
        asked(imported, graph)


def test_an_output_behind_places_is_compared(imported: ImportedTensors) -> None:
    """Places of repeated values say nothing, and the floats beside them do."""

    def both(x: Any, factor: float) -> Tensors:
        return {"places": x.argmax(0), "output": x * factor}

    several = replace(imported, reference=lambda one: both(one["input"], 1.0))
    with pytest.raises(UnsupportedError, match="'output' other values"):
        check_sizes(several, lambda one: both(one["input"], 2.0))


def test_a_graph_that_fails_is_refused(imported: ImportedTensors) -> None:
    def fails(x: Any) -> Any:
        raise EngineError("a node fails")

    with pytest.raises(UnsupportedError, match=r"fails where rows is 4, .*: a node fails"):
        asked(imported, fails)


def test_places_of_repeated_rows_and_deviations_of_one_row_are_left_out(
    imported: ImportedTensors,
) -> None:
    places = asked(
        imported, lambda x: np.arange(len(x))[::-1] if len(x) > 1 else np.zeros(1, int), arange
    )
    assert places == [4, 1]
    assert asked(imported, lambda x: x.std(0), lambda x: x.std(0) if len(x) > 1 else x[0] * np.nan)


def arange(x: Any) -> Any:
    return np.arange(len(x))


def test_rows_are_cut_and_repeated_without_equal_ones(imported: ImportedTensors) -> None:
    example = imported.samples[0]
    few = resized(example, imported.interface, {"rows": 2})["input"]
    np.testing.assert_array_equal(few, example["input"][:2])
    many = resized(example, imported.interface, {"rows": 7})["input"]
    assert many.dtype == np.float32
    assert len(np.unique(many)) == 28


def test_a_size_that_the_export_keeps_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(TRANSLATIONS, torch.ops.aten.adaptive_avg_pool2d.default)
    pool, sizes = torch.nn.AdaptiveAvgPool2d((3, 5)), {2: Dim("height", 4, 64)}
    found = import_module(pool, "pool", (torch.rand(1, 1, 12, 10),), {}, {"input": sizes})
    names = [one.name for one in found.interface.outputs]
    with pytest.raises(UnsupportedError, match="where height is 13") as error:
        check_sizes(found, lambda one: dict(zip(names, run(found.model, one), strict=True)))
    assert "leave such a dimension out of dynamic" in error.value.hint
