"""The shortcuts through the exporter give its own graph, and leave it as it was."""

from __future__ import annotations

import sys
from typing import Any

import onnx_ir as ir
import pytest
import torch
from onnx_ir.passes.common import ClearMetadataAndDocStringPass
from onnxscript import FLOAT, opset18
from torch.onnx._internal.exporter._registration import ONNXRegistry
from torch.onnx._internal.fx.passes.type_promotion import _TypePromotionInterpreter

from optc.importer.tracing import shortcuts
from optc.system.logs.quiet import quiet

AXES = {0: torch.export.Dim("B")}


class Promoted(torch.nn.Module):
    """Types that are promoted: integers with floats and numbers, conditions, and roots."""

    def forward(self, x: torch.Tensor, n: torch.Tensor) -> torch.Tensor:
        mixed = torch.where(n > 1.5, x * n, n + 0.25)
        return torch.rsqrt(n.abs() + 1) + mixed.pow(2) + torch.div(n, 2)[:, :1] + (x > n)


def exported() -> ir.Model:
    inputs = (torch.linspace(-2, 2, 12).reshape(3, 4), torch.arange(12).reshape(3, 4))
    with quiet():
        program = torch.onnx.export(
            Promoted().eval(),
            inputs,
            dynamo=True,
            optimize=False,
            verbose=False,
            dynamic_shapes={"x": AXES, "n": AXES},
        )
    assert program is not None
    ClearMetadataAndDocStringPass()(program.model)
    return program.model


def text(model: ir.Model) -> bytes:
    return ir.to_proto(model).SerializeToString(deterministic=True)


@pytest.fixture
def computed(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Names of the nodes that the pass for type promotion computes."""
    names: list[str] = []
    run_node = torch.fx.Interpreter.run_node

    def noted(self: torch.fx.Interpreter, node: torch.fx.Node) -> Any:
        if isinstance(self, _TypePromotionInterpreter) and node.op == "call_function":
            names.append(node.name)
        return run_node(self, node)

    monkeypatch.setattr(torch.fx.Interpreter, "run_node", noted)
    return names


def test_the_graph_is_the_exporters_own(computed: list[str]) -> None:
    own = exported()
    assert [node.op_type for node in own.graph].count("Cast") > 2, "something is promoted"
    every = set(computed)
    computed.clear()
    with shortcuts.known_results():
        light = exported()
    assert text(light) == text(own)
    assert set(computed) < every, "only what is promoted is computed"


def negated(x: FLOAT) -> FLOAT:
    return opset18.Neg(x)


def test_translations_are_read_once_and_none_is_added() -> None:
    with shortcuts.known_results():
        first, second = (ONNXRegistry.from_torchlib(opset_version=18) for _ in range(2))
        own = {target: list(known) for target, known in second.functions.items()}
        first.register_op(torch.ops.aten.rsqrt.default, negated)
        third = ONNXRegistry.from_torchlib(opset_version=18)
    assert first.opset_version == third.opset_version == 18
    assert first.functions != own
    assert third.functions == own
    one, other = (each.functions["aten::add.Tensor"][0] for each in (second, third))
    assert one is other, "read once"


def state() -> tuple[object, object]:
    return ONNXRegistry.__dict__["from_torchlib"], _TypePromotionInterpreter.run_node


def test_the_exporter_is_as_it_was_afterwards() -> None:
    before = state()
    with pytest.raises(AssertionError), shortcuts.known_results():
        assert state() == before
    assert state() == before


@pytest.mark.parametrize("name", [shortcuts._REGISTRY, shortcuts._PROMOTION])
def test_another_exporter_goes_its_own_way(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    before = state()
    monkeypatch.setitem(sys.modules, name, None)
    with shortcuts.known_results():
        assert state() == before
