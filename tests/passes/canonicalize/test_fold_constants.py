"""`fold-constants` on text."""

from __future__ import annotations

import numpy as np
import onnx
import onnx_ir as ir
import pytest

from optc.ir.weights import LazyWeight
from optc.passes.canonicalize.fold_constants import FoldConstants
from tests.passes.canonicalize.texts import after, exported
from tests.support.ir_text import expected, f32

SIGNATURE = "(float[B,S,8] x) => (float[B,S,8] y)"


def test_known_values_are_computed_and_equal_nodes_merged() -> None:
    nodes = """
        two = Constant <value_float: float = 2.0> ()
        four = Mul (two, two)
        a = Mul (x, four)
        b = Mul (x, four)
        y = Add (a, b)
        """
    model = exported(SIGNATURE, nodes)
    text, report = after(model, FoldConstants())
    assert text == expected("""
        t0 = Mul (x, four)
        y = Add (t0, t0)
        """)
    assert report.count == 3
    folded = model.graph.initializers["four"].const_value
    assert folded is not None
    assert folded.numpy() == 4.0


def test_weights_are_never_computed() -> None:
    """Shape inference may look at 20 elements at most; a norm of 64 is not read."""
    model = exported(
        "(float[B,S,64] x) => (float[B,S,64] y)",
        "scale = Add (w, one) y = Mul (x, scale)",
        {"w": f32(64)},
        {"one": np.float32(1)},
    )

    def refuse(start: int, stop: int) -> np.ndarray:
        raise AssertionError(f"rows {start}:{stop} were read")

    weight = LazyWeight(refuse, (64,), ir.DataType.FLOAT, "w")
    model.graph.initializers["w"].const_value = weight
    FoldConstants().run(model)
    assert [node.op_type for node in model.graph] == ["Add", "Mul"]


@pytest.mark.parametrize(("elements", "folded"), [(1024, True), (1025, False)])
def test_so_many_elements_are_computed(elements: int, folded: bool) -> None:
    """Of operands and of results."""
    for nodes, array in (
        ("b = Neg (a) y = Add (x, b)", f32(elements)),
        ("b = ReduceSum (a) y = Add (x, b)", f32(elements)),
    ):
        model = exported(
            f"(float[{elements}] x) => (float[{elements}] y)", nodes, None, {"a": array}
        )
        FoldConstants().run(model)
        assert [node.op_type for node in model.graph][-1] == "Add"
        assert (len(list(model.graph)) == 1) == folded


def test_functions_of_others_are_inlined() -> None:
    text = """
        <ir_version: 10, opset_import: ["" : 23, "lib" : 1]>
        g (float[B,S,8] x) => (float[B,S,8] y) { y = lib.twice (x) }
        <domain: "lib", opset_import: ["" : 23]> twice (a) => (b) { b = Add (a, a) }
        """
    model = ir.from_proto(onnx.parser.parse_model(text))
    result, _ = after(model, FoldConstants())
    assert result == "y = Add (x, x)"
    assert not model.functions


@pytest.mark.parametrize("channels", [8, 1100])
def test_a_number_that_is_repeated_is_a_constant_of_any_length(channels: int) -> None:
    """Exporters give convolutions without a bias as many zeros as there are channels: LFM2 and
    Qwen3-Next have thousands."""
    model = exported(
        f"(float[B,S,{channels}] x) => (float[B,S,{channels}] y)",
        "many = Shape (w) zeros = Expand (zero, many) y = Add (x, zeros)",
        {"w": f32(channels)},
        {"zero": np.float32(0.5)},
    )
    FoldConstants().run(model)
    (node,) = model.graph
    assert node.op_type == "Add"
    folded = node.inputs[1]
    assert folded is not None
    assert folded.const_value is not None
    np.testing.assert_array_equal(folded.const_value.numpy(), np.full(channels, 0.5, np.float32))


def test_tables_of_a_number_are_no_constants() -> None:
    model = exported(
        "(float[B,40,40] x) => (float[B,40,40] y)",
        "zeros = Expand (zero, many) y = Add (x, zeros)",
        None,
        {"zero": np.float32(0), "many": np.array([40, 40])},
    )
    FoldConstants().run(model)
    assert [node.op_type for node in model.graph] == ["Expand", "Add"]


def test_one_size_of_a_shape_is_known() -> None:
    """The rows of a stack are counted, however many tokens there are."""
    nodes = """
        s = Shape (x) n = Gather (s, last) r = Range (zero, n, two) f = Cast <to: int = 1> (r)
        y = Mul (x, f)
        """
    numbers = {"last": 2, "zero": 0, "two": 1}
    constants = {name: np.array(number) for name, number in numbers.items()}
    model = exported(SIGNATURE, nodes, {}, constants)
    text, _ = after(model, FoldConstants())
    assert text == expected("y = Mul (x, f)")
