"""The operators that quantize activations, and the float values behind them."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir
import pytest

from optc.ir.quantizers import activation_bits, float_operand, is_quantizer
from tests.support import oracle
from tests.support.ir_text import f32, model_of
from tests.support.ragged import run

SCALE = {"scale": f32(8)}
NORM = "<epsilon: float = 0.5>"
GATED = '<activation: string = "silu">'
CASES = {
    "QuantizeActivation": "q, s = optc.QuantizeActivation (x)",
    "RMSNormQuantize": f"q, s = optc.RMSNormQuantize {NORM} (x, scale)",
    "AddRMSNormQuantize": f"t, q, s = optc.AddRMSNormQuantize {NORM} (x, x, scale)",
    "GatedActivationQuantize": f"q, s = optc.GatedActivationQuantize {GATED} (x)",
}


def graph(nodes: str) -> tuple[ir.Model, ir.Node]:
    outputs = "float[S,1] s, float[S,8] t" if "t, q" in nodes else "float[S,1] s"
    model = model_of(f"g (float[S,8] x) => ({outputs})", nodes, SCALE)
    return model, model.graph[0]


def with_bits(nodes: str, bits: int) -> str:
    if bits == 8:
        return nodes
    one = f"bits: int = {bits}>"
    return (
        nodes.replace("> (", f", {one} (") if "> (" in nodes else nodes.replace(" (", f" <{one} (")
    )


@pytest.mark.parametrize("bits", [8, 16])
@pytest.mark.parametrize("name", CASES)
def test_the_float_value_is_what_is_quantized(name: str, bits: int) -> None:
    model, node = graph(with_bits(CASES[name], bits))
    assert is_quantizer(node)
    assert activation_bits(node.outputs[-2]) == bits
    x = f32(3, 8)
    before = run(model, {"x": x})
    value = float_operand(model, node)
    assert value is not None
    if name != "QuantizeActivation":
        value.name = "wanted"
        model.graph.outputs.append(value)
        value.shape = None
    after = run(model, {"x": x})
    for old, new in zip(before, after, strict=False):
        np.testing.assert_allclose(new, old, rtol=1e-6)
    wanted = x if name == "QuantizeActivation" else after[-1]
    _, scales = oracle.quantize_activation(wanted, bits)
    np.testing.assert_allclose(after[0], scales, rtol=1e-5)


def test_the_sum_is_then_that_of_the_new_node() -> None:
    model, node = graph(CASES["AddRMSNormQuantize"])
    float_operand(model, node)
    total = model.graph.outputs[1]
    assert (total.name, total.producer()) == ("t", model.graph[0])
    assert model.graph[0].op_type == "AddRMSNorm"


def test_other_operators_quantize_nothing() -> None:
    model = model_of("g (float[S,8] x) => (float[S,8] y)", "y = Tanh (x)")
    assert not is_quantizer(model.graph[0])
    assert not is_quantizer(None)
    lost = ir.Node("optc", "RMSNormQuantize", [], num_outputs=2, name="lost")
    with pytest.raises(ValueError, match="lost: node is in no graph"):
        float_operand(model, lost)


@pytest.mark.parametrize("name", CASES)
def test_a_rotation_is_part_of_the_float_value(name: str) -> None:
    nodes = CASES[name]
    stated = "hadamard: int = 4, width: int = 8>".replace("8", "4" if "Gated" in name else "8")
    nodes = (
        nodes.replace("> (", f", {stated} (")
        if "> (" in nodes
        else nodes.replace(" (x", f" <{stated} (x")
    )
    model, node = graph(nodes)
    before = run(model, {"x": f32(3, 8)})
    value = float_operand(model, node)
    producer = None if value is None else value.producer()
    assert value is not None
    assert producer is not None
    assert producer.op_type == "BlockHadamard"
    value.name, value.shape = "wanted", None
    model.graph.outputs.append(value)
    after = run(model, {"x": f32(3, 8)})
    _, scales = oracle.quantize_activation(after[-1], 8)
    np.testing.assert_allclose(before[0], scales, rtol=1e-5)
