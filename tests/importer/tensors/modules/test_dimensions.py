"""Dimensions of arguments that are structures of tensors."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from optc.errors import InputError, UnsupportedError
from optc.importer.tensors.program import import_module
from optc.system.sources.dim import Dim

ROWS, STEPS = Dim("rows", 1, 16), Dim("steps", 1, 16)


class Batch(torch.nn.Module):
    """Takes a dict of dicts, as a collator gives it."""

    def forward(self, batch: dict[str, Any], scale: torch.Tensor) -> torch.Tensor:
        x: torch.Tensor = batch["x"] + batch["more"]["bias"]
        return (x * scale).sum(1) / batch["lengths"]


EXAMPLE = (
    {
        "x": torch.ones(2, 5),
        "lengths": torch.tensor([5, 3]),
        "more": {"bias": torch.ones(5), "note": "text"},
    },
    torch.tensor(2.0),
)


def dims(dynamic: Any) -> dict[str, Any]:
    found = import_module(Batch(), "batch", EXAMPLE, {}, dynamic).interface
    return {one.name: one.dims for one in (*found.inputs, *found.outputs)}


def test_of_an_argument_are_those_of_its_tensors_as_far_as_they_have_axes() -> None:
    found = dims({"batch": {0: ROWS}, "batch_more_bias": {}})
    assert found["batch_x"] == ("rows", 5)
    assert found["batch_lengths"] == found["output"] == ("rows",)
    assert found["batch_more_bias"] == (5,)


def test_a_tensor_in_a_structure_has_its_own() -> None:
    found = dims({"batch": {0: ROWS, 1: STEPS}, "batch_more_bias": {0: STEPS}})
    assert found["batch_x"] == ("rows", "steps")
    assert found["batch_lengths"] == ("rows",)
    assert found["batch_more_bias"] == ("steps",)


def test_an_unknown_tensor_is_one_error_that_lists_all() -> None:
    with pytest.raises(InputError, match="dynamic: forward is given no argument 'batch_y'") as told:
        dims({"batch_y": {0: ROWS}})
    assert told.value.hint.startswith("it is given batch, scale, batch_x, batch_lengths")


def test_arguments_without_names_in_forward_are_refused() -> None:
    class Free(torch.nn.Module):
        def forward(self, x: torch.Tensor, **more: torch.Tensor) -> torch.Tensor:
            return x + more["y"]

    example = (torch.ones(2, 3),), {"y": torch.ones(2, 3)}
    with pytest.raises(UnsupportedError, match=r"forward takes y as \*\*more"):
        import_module(Free(), "free", *example, {"x": {0: ROWS}})
    assert import_module(Free(), "free", *example, {}).interface.inputs[1].dims == (2, 3)
