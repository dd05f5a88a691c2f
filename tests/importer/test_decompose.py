"""The shortcut through the exporter's decomposition against the decomposition itself."""

from __future__ import annotations

import operator
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from typing import Any

import pytest
import torch
from torch.export import ExportedProgram
from torch.onnx._internal.exporter._decomp import (
    create_onnx_friendly_decomposition_table,
    get_onnx_implemented_overloads,
)
from torch.onnx._internal.exporter._registration import ONNXRegistry

from optc.importer.decompose import _TAKEN, decompose_in_place, light_decomposition

X = torch.linspace(-2, 2, 12).reshape(3, 4)


class Plain(torch.nn.Module):
    """Casts, one of them to another type, a reshape, and something unused."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        torch.cumsum(x, 0)
        same = x.to(torch.float32)
        whole = torch.nn.functional.silu(same).to(torch.int64)
        return whole.to(torch.float32).reshape(-1, 2) * 3


class Composite(torch.nn.Module):
    """An operator that has to be decomposed."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.diff(x) + x[:, 1:].to(torch.float32)


class InPlace(torch.nn.Module):
    """A write into an operand."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return (x * 2).add_(1)


class OfEncoders(torch.nn.Module):
    """What layers of encoders have: dropout, norms, masks, halves, and copies of what is one
    already."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = torch.nn.LayerNorm(4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        dropped = torch.nn.functional.dropout(self.norm(x), 0.5, self.training)
        first, second = dropped.contiguous().chunk(2, -1)
        mask = (x > 0) & (x < 1) | (x < -1)
        least = torch.min(first, second).to(torch.float32, copy=True)
        most = torch.max(first, torch.tensor(0.25)).detach()
        return least * mask[:, :2].type_as(x) - torch.where(mask[:, 2:], most, 0.5)


class Taken(torch.nn.Module):
    """Composites that the exporter takes as they are."""

    def __init__(self) -> None:
        super().__init__()
        self.linear, self.norm = torch.nn.Linear(4, 4), torch.nn.GroupNorm(2, 4)
        self.row, self.plane = torch.nn.Conv1d(4, 4, 1), torch.nn.Conv2d(1, 1, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        attended = torch.nn.functional.scaled_dot_product_attention(x[None], x[None], x[None])
        planes = torch.nn.functional.interpolate(self.plane(attended[None]), scale_factor=2.0)
        rows = self.row(self.norm(self.linear(x)).t()).t()
        scores = torch.softmax(rows @ x.t(), -1) - torch.log_softmax(x @ rows.t(), -1)
        return torch.where(scores > 0, scores, 0.5) @ planes[0, 0, ::2, ::2]


class Uneven(torch.nn.Module):
    """Fewer chunks than were asked for, the last a smaller one."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        parts = x.reshape(2, 6)[:, :5].chunk(4, 1)
        return parts[0] + parts[-1] + len(parts)


class WritesIntoACopy(torch.nn.Module):
    """A write into what a cast has copied, which leaves alone what it was copied from."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        once = x * 2
        copied = once.to(torch.float32, copy=True)
        copied.add_(1)
        return once * copied


class Branches(torch.nn.Module):
    """Graphs in a graph."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.cond(x.sum() > 0, lambda y: torch.min(y, 2 * y), torch.exp, (x,))


class CalledInput(torch.nn.Module):
    """An argument by a name of Python's own."""

    def forward(self, input: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.silu(input.to(torch.float32))


class EndsInCast(torch.nn.Module):
    """The output itself is a cast."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return (x * 2).to(torch.float32)


@cache
def table() -> Mapping[Any, Any]:
    """What the exporter decomposes."""
    registry = ONNXRegistry.from_torchlib()
    registered = set(get_onnx_implemented_overloads(registry))
    return create_onnx_friendly_decomposition_table(registered)


def exported(module: torch.nn.Module) -> ExportedProgram:
    return torch.export.export(module.eval(), (X,), strict=False)


#: Kinds by how often they are traced again.
KINDS = {
    Plain: 0,
    Composite: 1,
    InPlace: 1,
    EndsInCast: 1,
    OfEncoders: 0,
    Taken: 0,
    Uneven: 0,
    WritesIntoACopy: 1,
    Branches: 1,
    CalledInput: 0,
}


@pytest.mark.parametrize("kind", KINDS)
def test_the_program_means_the_same(kind: type[torch.nn.Module]) -> None:
    torch.manual_seed(0)
    module = kind().eval()
    program = exported(module)
    text = str(program.graph)
    with light_decomposition():
        light = program.run_decompositions(table())
    torch.testing.assert_close(light.module()(X), module(X), rtol=0, atol=0)
    assert str(program.graph) == text, "the caller's program stays as it is"
    assert not {node.target for node in light.graph.nodes} & {*table()}


@contextmanager
def counted() -> Iterator[list[ExportedProgram]]:
    """Counts the programs that go the exporter's own way."""
    full, programs = ExportedProgram.run_decompositions, []

    def count(program: ExportedProgram, table: object = None) -> ExportedProgram:
        programs.append(program)
        return full(program, table)

    ExportedProgram.run_decompositions = count
    try:
        yield programs
    finally:
        ExportedProgram.run_decompositions = full


@pytest.mark.parametrize(("kind", "traced"), KINDS.items())
def test_only_what_must_be_is_traced_again(kind: type[torch.nn.Module], traced: int) -> None:
    program = exported(kind())
    with counted() as programs, light_decomposition():
        program.run_decompositions(table())
        assert len(programs) == traced


def test_the_exporter_takes_them_as_they_are() -> None:
    program = exported(Taken())
    whole = program.run_decompositions(dict(table()))
    kept = {node.target for node in whole.graph.nodes}
    taken = {node.target for node in program.graph.nodes} & {*_TAKEN}
    assert len(taken) > 8
    assert taken <= kept


def test_what_the_table_decomposes_is_not_final() -> None:
    table = {torch.ops.aten.silu.default: operator.neg}
    assert not decompose_in_place(exported(Plain()).graph, table)


def test_casts_and_unused_nodes_go() -> None:
    program = exported(Plain())
    assert decompose_in_place(program.graph, {})
    names = [str(n.target) for n in program.graph.nodes if n.op == "call_function"]
    assert names == [
        "aten.silu.default",
        "aten._to_copy.default",
        "aten._to_copy.default",
        "aten.reshape.default",
        "aten.mul.Tensor",
    ]
