"""`fold-weights` on text: arithmetic on weights becomes part of reading them."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import onnx_ir as ir
import pytest

from optc.ir.weights import LazyWeight
from optc.passes.canonicalize.fold_weights import FoldWeights
from tests.passes.canonicalize.texts import after, exported, unchanged
from tests.support.ir_text import Array, expected, f32

SIGNATURE = "(float[B,S,8] x) => (float[B,S,6] y)"
LINEAR = "t = Transpose <perm: ints = [1, 0]> (w) y = MatMul (x, t)"


def weight(model: ir.Model, name: str) -> LazyWeight:
    tensor = model.graph.initializers[name].const_value
    assert isinstance(tensor, LazyWeight)
    return tensor


def test_transposed_weight_keeps_its_name_and_its_rows() -> None:
    model = exported(SIGNATURE, LINEAR, {"w": f32(6, 8)})
    text, report = after(model, FoldWeights())
    assert text == "y = MatMul (x, w)"
    assert report.details == {"transpose": 1}
    assert (weight(model, "w").transposed, weight(model, "w").rows_shape) == (True, (6, 8))
    assert (
        unchanged(exported(SIGNATURE, LINEAR, {"w": f32(6, 8)}), {"x": f32(2, 3, 8)}, FoldWeights())
        == 0
    )


def test_tied_weight_is_read_by_both() -> None:
    nodes = "x = Gather <axis: int = 0> (w, ids) " + LINEAR
    model = exported("(int64[B,S] ids) => (float[B,S,6] y)", nodes, {"w": f32(6, 8)})
    text, _ = after(model, FoldWeights())
    assert text == expected("""
        t0 = Gather <axis = 0> (w, ids)
        y = MatMul (t0, w.transposed)
        """)
    lookup, head = weight(model, "w"), weight(model, "w.transposed")
    assert lookup.read_rows is head.read_rows


@pytest.mark.parametrize(
    ("node", "function"),
    [
        ("Add (one, w)", lambda w: 1.5 + w),
        ("Add (w, one)", lambda w: w + 1.5),
        ("Sub (one, w)", lambda w: 1.5 - w),
        ("Sub (w, one)", lambda w: w - 1.5),
        ("Mul (w, one)", lambda w: w * 1.5),
        ("Div (w, one)", lambda w: w / np.float32(1.5)),
    ],
)
def test_arithmetic_is_applied_to_rows(node: str, function: object) -> None:
    assert callable(function)
    model = exported(
        "(float[B,S,8] x) => (float[B,S,8] y)",
        f"scale = {node} y = Mul (x, scale)",
        {"w": f32(8)},
        {"one": np.float32(1.5)},
    )
    text, report = after(model, FoldWeights())
    assert text == "y = Mul (x, w)"
    assert report.details == {"arithmetic": 1}
    np.testing.assert_array_equal(weight(model, "w").read_rows(2, 5), function(f32(8))[2:5])


@pytest.mark.parametrize("shape", [(8,), (1, 8), (4, 8)])
@pytest.mark.parametrize(("node", "function"), [("Exp", np.exp), ("Neg", np.negative)])
def test_functions_of_weights_are_applied_to_rows(
    node: str, function: Callable[[Array], Array], shape: tuple[int, ...]
) -> None:
    model = exported(
        "(float[B,4,8] x) => (float[B,4,8] y)",
        f"rate = {node} (w) y = Mul (x, rate)",
        {"w": f32(*shape)},
    )
    text, report = after(model, FoldWeights())
    assert text == "y = Mul (x, w)"
    assert report.details == {"arithmetic": 1}
    rows = slice(0, shape[0])
    np.testing.assert_array_equal(
        weight(model, "w").read_rows(rows.start, rows.stop), function(f32(*shape))
    )


@pytest.mark.parametrize(
    ("nodes", "stays"),
    [
        ("r = Reshape (w, shape) y = Add (x, r)", False),
        ("r = Reshape (w, shape) y = Sub (r, x)", False),
        ("r = Reshape (w, shape) s = Mul (r, r) y = Add (x, s)", True),
        ("r = Reshape (w, shape) s = ReduceSum (r) y = Add (x, s)", True),
    ],
)
def test_axes_of_one_before_a_vector_fall_away(nodes: str, stays: bool) -> None:
    model = exported(
        "(float[B,S,8] x) => (float[B,S,8] y)", nodes, {"w": f32(8)}, {"shape": np.array([1, 1, 8])}
    )
    for node in model.graph:
        if node.outputs[0].name == "r":
            node.outputs[0].shape = ir.Shape([1, 1, 8])
    text, report = after(model, FoldWeights())
    assert ("Reshape" in text) == stays
    assert report.details == ({} if stays else {"vector": 1})


def test_cast_to_the_type_it_has_is_dropped() -> None:
    model = exported(
        "(float[B,S,8] x) => (float[B,S,8] y)",
        "scale = Cast <to: int = 1> (w) y = Mul (x, scale)",
        {"w": f32(8)},
    )
    assert after(model, FoldWeights())[0] == "y = Mul (x, w)"


def test_gemm_is_a_linear_layer() -> None:
    def model(options: str) -> ir.Model:
        return exported(
            "(float[T,8] x) => (float[T,6] y)",
            f"y = Gemm <{options}> (x, w, b)",
            {"w": f32(6, 8), "b": f32(6)},
        )

    text, report = after(model("transB: int = 1"), FoldWeights())
    assert text == expected("""
        t0 = MatMul (x, w)
        y = Add (t0, b)
        """)
    assert report.details == {"gemm": 1, "transpose": 1}
    assert unchanged(model("transB: int = 1"), {"x": f32(5, 8)}, FoldWeights()) < 1e-6
    scaled = FoldWeights().run(model("transB: int = 1, alpha: float = 2.0"))
    assert scaled.skipped[0].endswith(
        "a Gemm with alpha, beta or transA is not a linear layer I know"
    )


@pytest.mark.parametrize("order", ["ids, two", "two, ids"])
def test_rows_behind_an_offset(order: str) -> None:
    nodes = f"late = Add ({order}) y = Gather <axis: int = 0> (w, late)"
    signature = "(int64[B,S] ids) => (float[B,S,6] y)"

    def model() -> ir.Model:
        return exported(signature, nodes, {"w": f32(8, 6)}, {"two": np.array(2)})

    found = model()
    text, report = after(found, FoldWeights())
    assert text == "y = Gather <axis = 0> (w.from_2, ids)"
    assert report.details == {"offset": 1}
    np.testing.assert_array_equal(weight(found, "w.from_2").read_rows(1, 3), f32(8, 6)[3:5])
    assert unchanged(model(), {"ids": np.array([[0, 5, 3]])}, FoldWeights()) == 0


def test_a_table_that_the_class_computes_is_cut_too() -> None:
    nodes = "late = Add (ids, two) y = Gather <axis: int = 0> (table, late)"
    constants = {"two": np.array(2), "table": f32(8, 6)}
    model = exported("(int64[B,S] ids) => (float[B,S,6] y)", nodes, {}, constants)
    text, _ = after(model, FoldWeights())
    assert text == "y = Gather <axis = 0> (table.from_2, ids)"
    np.testing.assert_array_equal(weight(model, "table.from_2").read_rows(0, 6), f32(8, 6)[2:])


def test_rows_behind_an_offset_whose_indices_are_put_in_one_axis() -> None:
    nodes = """late = Add (ids, two) wide = Reshape (late, rows) flat = Reshape (wide, flat_shape)
        y = Gather <axis: int = 0> (w, flat)"""
    shapes = {"rows": np.array([3, -1]), "flat_shape": np.array([-1])}

    def model() -> ir.Model:
        signature = "(int64[B,S] ids) => (float[T,6] y)"
        return exported(signature, nodes, {"w": f32(8, 6)}, {"two": np.array(2), **shapes})

    text, report = after(model(), FoldWeights())
    assert text == expected("""
        t0 = Reshape <allowzero = 0> (ids, rows)
        t1 = Reshape <allowzero = 0> (t0, flat_shape)
        y = Gather <axis = 0> (w.from_2, t1)
        """)
    assert report.details == {"offset": 1}
    assert unchanged(model(), {"ids": np.array([[0, 5, 3]])}, FoldWeights()) == 0


def test_offsets_beyond_the_table_stay() -> None:
    nodes = "late = Add (ids, ten) y = Gather <axis: int = 0> (w, late)"
    constants = {"ten": np.array(10)}
    model = exported("(int64[B,S] ids) => (float[B,S,6] y)", nodes, {"w": f32(8, 6)}, constants)
    assert FoldWeights().run(model).count == 0


def test_a_weight_by_input_channel_is_read_by_output_channel(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("optc.ir.weights.TILE_ELEMENTS", 12)  # two rows of six
    model = exported(SIGNATURE, "y = MatMul (x, w)", {"w": f32(8, 6)})
    text, report = after(model, FoldWeights())
    assert text == "y = MatMul (x, w)"
    assert report.details == {"by output channel": 1}
    found = weight(model, "w")
    assert (found.transposed, found.rows_shape) == (True, (6, 8))
    np.testing.assert_array_equal(found.read_rows(1, 4), f32(8, 6).T[1:4])
    np.testing.assert_array_equal(found.numpy(), f32(8, 6))


def test_rows_of_all_experts_become_a_stack() -> None:
    nodes = "s = Reshape (w, three) y = MatMul (x, s)"
    shape = {"three": np.array([3, 4, 5])}
    one = exported("(float[3,T,4] x) => (float[3,T,5] y)", nodes, {"w": f32(12, 5)}, shape)
    text, report = after(one, FoldWeights())
    assert text == "y = MatMul (x, w)"
    assert report.details == {"stack": 1}
    stack = weight(one, "w")
    assert stack.rows_shape == (3, 4, 5)
    np.testing.assert_array_equal(stack.numpy(), f32(12, 5).reshape(3, 4, 5))
    np.testing.assert_array_equal(stack.read_rows(1, 2), f32(12, 5)[4:8].reshape(1, 4, 5))


@pytest.mark.parametrize("shape", [(1, 12, 5), (3, 5, 4), (12, 5, 1)])
def test_other_shapes_are_no_stacks(shape: tuple[int, ...]) -> None:
    sizes = ",".join(map(str, shape))
    one = exported(
        f"(float[{sizes}] x) => (float[{sizes}] y)",
        "s = Reshape (w, three) y = Add (x, s)",
        {"w": f32(12, 5)},
        {"three": np.array(shape)},
    )
    assert FoldWeights().run(one).count == 0
