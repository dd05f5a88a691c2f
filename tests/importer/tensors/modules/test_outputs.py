"""Results of modules: which are outputs, and under which names."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from optc import Dim
from optc.errors import UnsupportedError
from optc.importer.tensors.program import import_module, import_program
from tests.support.ragged import run

X = torch.linspace(-1, 1, 12).reshape(3, 4)


class Giving(torch.nn.Module):
    """What a function gives."""

    def __init__(self, give: Callable[..., Any]) -> None:
        super().__init__()
        self.give = give
        self.weight = torch.nn.Parameter(torch.ones(2))

    def forward(self, x: torch.Tensor) -> Any:
        return self.give(self, x)


@pytest.mark.parametrize(
    ("give", "names"),
    [
        (lambda m, x: (x * 2, None, x + 1), ["output_0", "output_2"]),
        (lambda m, x: (x * 2, 3, True, "a", x + 1), ["output_0", "output_4"]),
        (lambda m, x: (x * 2, x.shape[0]), ["output_0", "output_1"]),
        (lambda m, x: (x, x * 2), ["output_0", "output_1"]),
        (lambda m, x: x, ["output"]),
        (lambda m, x: (m.weight, x), ["output_0", "output_1"]),
        (lambda m, x: {"x": x * 2, "x_out": x * 3}, ["x_out", "x_out_out"]),
        (lambda m, x: {"a": {"b": x * 2}, "a_b": x * 3}, ["a_b", "a_b_out"]),
        (lambda m, x: (x.long() % 3, x.argmax(-1)), ["output_0", "output_1"]),
    ],
)
def test_results_are_outputs_by_name_and_inputs_keep_theirs(give: Any, names: list[str]) -> None:
    rows = {"x": {0: Dim("rows", 2, 9)}}
    module = Giving(give)
    found = import_module(module, "g", (X,), {}, rows)
    assert [one.name for one in found.interface.inputs] == ["x"]
    assert [one.name for one in found.interface.outputs] == names
    given = {"x": torch.cat([X, X + 1]).numpy()}
    assert found.reference is not None
    wanted = found.reference(given)
    assert list(wanted) == names
    for value, name in zip(run(found.model, given), names, strict=True):
        np.testing.assert_allclose(value, wanted[name], rtol=1e-6)


def test_what_is_the_same_in_every_call_is_left_out_with_a_warning() -> None:
    found = import_module(Giving(lambda m, x: (x * 2, 3, None)), "g", (X,), {}, {})
    assert found.warnings == ("result 1 of forward is 3 in every call: it is no output",)


def test_complex_results_are_refused() -> None:
    with pytest.raises(UnsupportedError, match="result 0 of forward has complex numbers"):
        import_module(Giving(lambda m, x: torch.fft.rfft(x)), "g", (X,), {}, {})


@pytest.mark.parametrize(
    ("give", "dims", "problem", "hint"),
    [
        (
            lambda m, x: x[:2] + x[2:],
            {0: Dim("a", 2, 9)},
            "the dimension a can only be 4",
            "leave a out of dynamic",
        ),
        (
            lambda m, x: x + x.mT,
            {0: Dim("a", 2, 9), 1: Dim("b", 2, 9)},
            "the dimensions b and a have one size",
            "give b the name a, too",
        ),
    ],
)
def test_dimensions_that_do_not_suit_say_why(
    give: Any, dims: dict[int, Dim], problem: str, hint: str
) -> None:
    with pytest.raises(UnsupportedError, match=problem) as refused:
        import_module(Giving(give), "g", (torch.ones(4, 4),), {}, {"x": dims})
    assert refused.value.hint == hint


def test_a_callers_program_stays_as_it_is() -> None:
    program = torch.export.export(Giving(lambda m, x: (x * 2, 3, x + 1)), (X,))
    nodes = str(program.graph)
    for _ in range(2):
        found = import_program(program, "p")
        assert found.warnings == ("result 1 of forward is 3 in every call: it is no output",)
    assert str(program.graph) == nodes
    assert program.module()(X)[1] == 3
