"""The shortcut through the exporter's decomposition against the decomposition itself."""

from __future__ import annotations

import operator
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
import torch
from torch.export import ExportedProgram

from optc.importer.decompose import decompose_in_place, light_decomposition

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


class EndsInCast(torch.nn.Module):
    """The output itself is a cast."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return (x * 2).to(torch.float32)


def exported(module: torch.nn.Module) -> ExportedProgram:
    return torch.export.export(module.eval(), (X,), strict=False)


@pytest.mark.parametrize("kind", [Plain, Composite, InPlace, EndsInCast])
def test_the_program_means_the_same(kind: type[torch.nn.Module]) -> None:
    program = exported(kind())
    with light_decomposition():
        light = program.run_decompositions(torch.export.default_decompositions())
    light.graph_module.recompile()
    torch.testing.assert_close(light.module()(X), kind()(X), rtol=0, atol=0)


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


@pytest.mark.parametrize(
    ("kind", "traced"), [(Plain, 0), (Composite, 1), (InPlace, 1), (EndsInCast, 1)]
)
def test_only_what_must_be_is_traced_again(kind: type[torch.nn.Module], traced: int) -> None:
    program = exported(kind())
    with counted() as programs, light_decomposition():
        program.run_decompositions()
        assert len(programs) == traced


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
