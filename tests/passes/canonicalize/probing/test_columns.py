"""Columns in another order: where no value has to be moved for it, and where that cannot be."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir
import pytest

from optc.ir.functions import attributes_of, ensure_function
from optc.ir.sources import sources_of
from optc.passes.canonicalize.probing.columns import take_columns, take_heads
from optc.passes.canonicalize.probing.evaluate import Unreadable
from optc.runtime.executable.row_ranges import rows_of
from tests.passes.canonicalize.texts import exported
from tests.support.ir_text import f32
from tests.support.ragged import run

SIGNATURE = "(float[B,S,6] h) => (float[B,S,N] out)"
WEIGHTS = {"w": f32(6, 8, seed=1), "v": f32(6, 16, seed=2)}
CONSTANTS = {
    "bias": f32(8, seed=3),
    "scale": f32(8, seed=4),
    "head": f32(4, seed=5),
    "n4": np.array([4]),
    "n12": np.array([12]),
    "minus": np.array([-1]),
    "thirds": np.array([3, 8, 5]),
}
ANY = [3, 0, 7, 5, 1, 6, 2, 4]


def model_of(nodes: str) -> ir.Model:
    model = exported(SIGNATURE, f"{nodes} out = Identity (x)", WEIGHTS, CONSTANTS)
    for node in model.graph:
        if node.domain == "optc":
            node.overload = ensure_function(
                model, node.op_type, attributes_of(node), [True] * len(node.inputs)
            )
            node.outputs[0].shape = ir.Shape(["B", "S", 8])
            node.outputs[0].type = ir.TensorType(ir.DataType.FLOAT)
    return model


def taken(nodes: str, columns: list[int]) -> tuple[np.ndarray, np.ndarray, set[str], ir.Value]:
    """These columns of x by what was made of it, and by NumPy; which operators the first one is
    made of; and its value."""
    feeds = {"h": f32(2, 3, 6, seed=9)}
    (whole,) = run(model_of(nodes), feeds)
    model = model_of(nodes)
    last = next(node for node in model.graph if node.outputs[0].name == "out")
    x = last.inputs[0]
    assert x is not None
    found = take_columns(model, last, x, np.array(columns), "turned")
    last.replace_input_with(0, found)
    made: set[str] = set()
    stack = [found]
    while stack:
        node = stack.pop().producer()
        if node is not None:
            made.add(node.op_type)
            stack.extend(value for value in node.inputs if value is not None)
    (result,) = run(model, feeds)
    return result, whole[..., columns], made, found


NORMED = "p = MatMul (h, w) x = RMSNormalization <axis = -1, epsilon = 0.01> (p, scale)"


def test_a_weight_in_another_order_says_which_rows_of_which_tensor_it_has() -> None:
    _, _, _, found = taken("x = MatMul (h, w)", ANY)
    weight = found.producer().inputs[1]  # type: ignore[union-attr]
    assert weight is not None
    (source,) = sources_of(weight, len(ANY))
    assert (source.tensor, source.of, source.stop) == ("w", 8, 8)
    assert rows_of(source.ranges).tolist() == ANY


@pytest.mark.parametrize(
    ("nodes", "columns", "made"),
    [
        ("x = MatMul (h, w)", list(range(8)), {"MatMul"}),
        ("x = MatMul (h, w)", [2, 3, 4], {"MatMul", "Slice"}),
        ("x = MatMul (h, w)", [7], {"MatMul", "Slice"}),
        ("x = MatMul (h, w)", ANY, {"MatMul"}),
        ("x = MatMul (h, w)", [5, 2], {"MatMul"}),
        ("p = MatMul (h, w) x = Add (p, bias)", ANY, {"MatMul", "Add"}),
        ("p = MatMul (h, v) x = Slice (p, n4, n12, minus)", ANY, {"MatMul"}),
        ("p = MatMul (h, v) a, x, b = Split <axis = -1> (p, thirds)", ANY, {"MatMul"}),
        (NORMED, ANY, {"MatMul", "RMSNormalization"}),
        (
            "p = MatMul (h, w) x = LayerNormalization <axis = -1> (p, scale, bias)",
            ANY,
            {"MatMul", "LayerNormalization"},
        ),
    ],
)
def test_columns_by_other_rows_of_weights(nodes: str, columns: list[int], made: set[str]) -> None:
    result, expected, operators, value = taken(nodes, columns)
    np.testing.assert_allclose(result, expected, rtol=1e-5, atol=1e-6)
    assert operators == made
    assert value.shape is not None
    assert value.shape[-1] == len(columns)


HEADS = "p = MatMul (h, w) x = optc.HeadRMSNorm <num_heads = 2, epsilon = 0.01> (p, head)"


@pytest.mark.parametrize("order", [[0, 2, 1, 3], [3, 1, 0, 2]])
def test_columns_of_a_norm_over_heads(order: list[int]) -> None:
    """One order within each head."""
    columns = [*order, *(4 + one for one in order)]
    result, expected, operators, value = taken(HEADS, columns)
    np.testing.assert_allclose(result, expected, rtol=1e-5, atol=1e-6)
    assert operators == {"MatMul", "HeadRMSNorm"}
    assert [str(d) for d in value.shape or ()] == ["B", "S", "8"]


@pytest.mark.parametrize(
    ("nodes", "columns"),
    [
        (HEADS, [3, 1, 0, 2, 4, 5, 6, 7]),
        (HEADS, [7, 6, 5, 4, 3, 2, 1, 0]),
        (HEADS, [1, 0]),
        (HEADS.replace("x =", "n = Neg (head) x =").replace("(p, head)", "(p, n)"), [1, 0, 3, 2]),
    ],
)
def test_other_columns_of_a_norm_over_heads(nodes: str, columns: list[int]) -> None:
    with pytest.raises(Unreadable, match="the columns of its head norm cannot be put"):
        taken(nodes, columns)


def test_a_new_weight_is_called_by_its_role() -> None:
    _, _, _, value = taken("x = MatMul (h, w)", [5, 2])
    node = value.producer()
    assert node is not None
    weight = node.inputs[1]
    assert weight is not None
    assert weight.name == "w.turned"


@pytest.mark.parametrize(
    ("nodes", "columns", "reason"),
    [
        ("x = Sigmoid (h)", [1, 0, 2, 3, 4, 5], "the columns of its operand cannot be put"),
        (NORMED, [1, 0], "the columns of its operand cannot be put"),
        (
            "p = MatMul (h, w) s = Neg (scale) x = RMSNormalization <axis = -1> (p, s)",
            ANY,
            "its norm has no constant scale",
        ),
    ],
)
def test_what_cannot_be_put_in_another_order(nodes: str, columns: list[int], reason: str) -> None:
    with pytest.raises(Unreadable, match=reason):
        taken(nodes, columns)


#: Two heads of four: from p (8 columns) and q (8 columns, counted from 8 on).
JOINED = {
    "shared first": ([[3, 1, 8, 9], [3, 1, 12, 13]], 1),
    "own first": ([[3, 1, 8, 9], [7, 5, 12, 13]], 0),
    "from the second first": ([[9, 8, 0, 5], [9, 8, 1, 4]], 1),
    "one head": ([[3, 1, 8, 9]], 0),
}
TWO = "p = MatMul (h, w) q = MatMul (h, u) x = Concat <axis = -1> (p, q)"


def joined(columns: list[list[int]]) -> tuple[np.ndarray, np.ndarray, ir.Node]:
    """Heads of these columns of two projections, the same by NumPy, and what joins them."""
    feeds = {"h": f32(2, 3, 6, seed=9)}
    weights = WEIGHTS | {"u": f32(6, 8, seed=7)}

    def fresh() -> ir.Model:
        return exported(SIGNATURE, f"{TWO} out = Identity (x)", weights, CONSTANTS)

    (whole,) = run(fresh(), feeds)
    model = fresh()
    values = {str(v.name): v for node in model.graph for v in node.outputs}
    last = values["out"].producer()
    assert last is not None
    found = take_heads(model, last, [values["p"], values["q"]], np.array(columns), "k")
    last.replace_input_with(0, found)
    node = found.producer()
    assert node is not None
    return run(model, feeds)[0], whole[..., np.ravel(columns)], node


@pytest.mark.parametrize("name", JOINED)
def test_heads_of_two_projections_are_joined(name: str) -> None:
    columns, shared = JOINED[name]
    found, expected, node = joined(columns)
    np.testing.assert_allclose(found, expected, rtol=1e-6, atol=1e-6)
    assert node.op_type == "HeadConcat"
    assert attributes_of(node) == {"num_heads": len(columns), "shared": shared}


@pytest.mark.parametrize(
    ("columns", "reason"),
    [
        ([[0, 8, 1, 9], [2, 10, 3, 11]], "take turns in coming from two projections"),
        ([[0, 1, 8, 9], [2, 3, 8, 9]], "take turns in coming from two projections"),
        ([[0, 1, 8, 9], [8, 9, 0, 1]], "its heads come from different projections"),
    ],
)
def test_other_heads_of_two_projections_are_not(columns: list[list[int]], reason: str) -> None:
    with pytest.raises(Unreadable, match=reason):
        joined(columns)


def test_heads_of_one_of_two_projections_are_its_columns() -> None:
    found, expected, node = joined([[10, 9, 8, 11], [12, 13, 14, 15]])
    np.testing.assert_allclose(found, expected, rtol=1e-6, atol=1e-6)
    assert node.op_type == "MatMul"
