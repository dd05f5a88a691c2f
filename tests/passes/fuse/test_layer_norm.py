from __future__ import annotations

import numpy as np
import onnx_ir as ir
import pytest

from optc.ir.forms.packed import PackedRows
from optc.ir.functions import attributes_of, make_node
from optc.passes.fuse.layer_norm import FuseLayerNorm
from optc.passes.fuse.norm_quantize import FuseNormQuantize
from tests.support.ragged import run

ROWS, WIDTH = 6, 64
NUMBERS = np.random.default_rng(0).standard_normal((3, ROWS, WIDTH)).astype(np.float32)
FEEDS = {"residual": NUMBERS[0], "x": NUMBERS[1]}


def _model(text: str, *quantized: str, block: int = 0) -> ir.Model:
    """A graph of rows ``residual`` and ``x``, and values of it quantized, which are outputs."""
    model = ir.from_onnx_text(f"""
        <ir_version: 10, opset_import: ["" : 23]>
        graph (float[T, {WIDTH}] residual, float[T, {WIDTH}] x) => (float[T, {WIDTH}] y)
        {{ {text} }}
    """)
    graph = model.graph
    scale, bias = (
        ir.Value(
            name=name,
            const_value=ir.tensor(array),
            shape=ir.Shape([WIDTH]),
            type=ir.TensorType(ir.DataType.FLOAT),
        )
        for name, array in (("scale", NUMBERS[2][0] + 2), ("bias", NUMBERS[2][1]))
    )
    for value in (scale, bias):
        graph.register_initializer(value)
    by_name = {v.name: v for node in graph for v in node.outputs}
    for node in graph:
        for value in node.outputs:
            value.shape = ir.Shape(["T", WIDTH])
            value.type = ir.TensorType(ir.DataType.FLOAT)
        for index, value in enumerate(node.inputs):
            if value is not None and value.name in ("scale", "bias"):
                node.replace_input_with(index, scale if value.name == "scale" else bias)
    for name in quantized:
        options = {"bits": 8, **({"hadamard": block, "width": WIDTH} if block else {})}
        new = make_node(
            model,
            "QuantizeActivation",
            [by_name[name]],
            options,
            outputs=[f"{name}.q", f"{name}.s"],
        )
        graph.append(new)
        graph.outputs.extend(new.outputs)
    PackedRows("ids", "", "", ("y",)).attach(model)
    return model


def _fused(model: ir.Model) -> tuple[list[str], list[ir.Node]]:
    """Node types behind the pass, whose numbers are those before it."""
    before = run(model, FEEDS)
    FuseLayerNorm().run(model)
    after = run(model, FEEDS)
    assert len(before) == len(after)
    for one, other in zip(before, after, strict=True):
        if one.dtype == np.int8:  # a rounding of a norm that is computed in another order
            assert np.abs(one.astype(int) - other).max() <= 1
        else:
            np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-6)
    return [node.op_type for node in model.graph], list(model.graph)


NORM = "LayerNormalization <axis = -1, epsilon = 1e-5>"


@pytest.mark.parametrize("operands", ["sum, scale", "sum, scale, bias"])
def test_a_residual_joins_the_norm(operands: str) -> None:
    model = _model(f"sum = Add (residual, x) y = {NORM} ({operands})")
    assert _fused(model)[0] == ["AddLayerNorm"]


def test_the_rounding_joins_and_the_float_result_stays_for_others() -> None:
    model = _model(
        f"sum = Add (residual, x) n = {NORM} (sum, scale, bias) y = Neg (n)", "n", block=64
    )
    types, nodes = _fused(model)
    assert types == ["AddLayerNormQuantize", "Neg"]
    assert attributes_of(nodes[0])["hadamard"] == 64


def test_a_sum_that_is_read_later_stays() -> None:
    model = _model(f"sum = Add (residual, x) n = {NORM} (sum, scale) y = Add (sum, n)")
    assert _fused(model)[0] == ["AddLayerNorm", "Add"]


def test_a_norm_without_a_sum_takes_its_rounding() -> None:
    model = _model(f"n = {NORM} (x, scale) y = Neg (n)", "n")
    assert _fused(model)[0] == ["LayerNormQuantize", "Neg"]


@pytest.mark.parametrize("how", ["none", "tanh"])
def test_gelu_takes_its_rounding(how: str) -> None:
    model = _model(f'g = Gelu <approximate = "{how}"> (x) y = Neg (x)', "g")
    assert sorted(_fused(model)[0]) == ["ActivationQuantize", "Neg"]


@pytest.mark.parametrize(
    ("text", "quantized", "reason"),
    [
        (f"y = {NORM} (x, scale)", (), "follows no sum"),
        ("g = Gelu (x) y = Neg (g)", ("g",), "not only quantized"),
        ("y = LayerNormalization <axis = 0> (x, scale)", (), "not over the last axis"),
    ],
)
def test_what_is_left_alone(text: str, quantized: tuple[str, ...], reason: str) -> None:
    model = _model(text, *quantized)
    before = [node.op_type for node in model.graph]
    report = FuseLayerNorm().run(model)
    assert [node.op_type for node in model.graph] == before
    assert any(reason in line for line in report.skipped)


def test_it_comes_behind_the_rotation_that_joins_the_rounding() -> None:
    model = _model(f"n = {NORM} (x, scale) y = Neg (n)")
    node = next(n for n in model.graph if n.op_type == "LayerNormalization")
    rotation = make_node(
        model,
        "BlockHadamard",
        [node.outputs[0]],
        {"block": 64, "width": WIDTH, "inverse": 0},
        outputs=["turned"],
    )
    quantize = make_node(
        model,
        "QuantizeActivation",
        [rotation.outputs[0]],
        {"bits": 8},
        outputs=["turned.q", "turned.s"],
    )
    model.graph.extend([rotation, quantize])
    model.graph.outputs.extend(quantize.outputs)
    PackedRows("ids", "", "", ("y",)).attach(model)
    FuseNormQuantize().run(model)
    assert PackedRows in FuseLayerNorm.takes
    assert _fused(model)[0] == ["LayerNormQuantize", "Neg"]
