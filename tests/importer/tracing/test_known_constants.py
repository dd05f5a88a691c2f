"""Functions of known numbers become numbers in an exported program."""

from __future__ import annotations

import torch
from torch._subclasses.fake_tensor import FakeTensorMode

from optc.importer.decompose import light_decomposition


class Quantile(torch.nn.Module):
    """A threshold that is a quantile of the normal distribution, and one of what is given."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        quantile = torch.distributions.normal.Normal(0, 1).icdf(torch.tensor(0.95))
        return torch.relu(x - quantile.type(x.dtype))


class Computed(torch.nn.Module):
    """The function itself, of what is given."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.erfinv(x)


def operators(module: torch.nn.Module) -> list[str]:
    """What is called in the program of a module, built and exported without values."""
    with FakeTensorMode(allow_non_fake_inputs=True):
        program = torch.export.export(module.eval(), (torch.zeros(2, 3),), strict=False)
        with light_decomposition():
            program = program.run_decompositions({})
    return [str(node.target) for node in program.graph.nodes if node.op == "call_function"]


def test_a_quantile_is_a_number() -> None:
    found = operators(Quantile())
    assert "aten.relu.default" in found
    assert "aten.erfinv.default" not in found
    program = torch.export.export(Quantile().eval(), (torch.zeros(2, 3),), strict=False)
    with light_decomposition():
        program = program.run_decompositions({})
    x = torch.linspace(-3, 3, 6).reshape(2, 3)
    torch.testing.assert_close(program.module()(x), Quantile()(x), rtol=0, atol=0)


def test_what_is_not_known_stays() -> None:
    assert "aten.erfinv.default" in operators(Computed())
