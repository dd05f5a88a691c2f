"""The residual stream: who writes and reads it, and why it cannot be turned."""

from __future__ import annotations

import pytest

from optc.ir.functions import is_op
from optc.passes.quantize.rotate.residual import NotTurnableError, find_residual
from tests.support.dense_models import dense_model
from tests.support.ir_text import f32, model_of

SIGNATURE = "g (int64[1,S] tokens) => (float[1,S,9] y)"
NORM = "RMSNormalization <axis: int = -1>"
LAST = f"z = {NORM} (h, one)\ny = MatMul (z, head)"


def test_writers_readers_and_the_ends() -> None:
    found = find_residual(dense_model(2))
    gather = found.embedded.producer()
    assert gather is not None
    assert is_op(gather, "Gather")
    assert [str(node.inputs[1].name) for node in found.writers] == [  # type: ignore[union-attr]
        *("l0.o", "l0.down", "l1.o", "l1.down")
    ]
    read = [sorted(str(n.inputs[1].name) for n in nodes) for _, nodes in found.readers]  # type: ignore[union-attr]
    assert read == [
        *(["l0.k", "l0.q", "l0.v"], ["l0.gate", "l0.up"]),
        *(["l1.k", "l1.q", "l1.v"], ["l1.gate", "l1.up"]),
    ]
    assert found.last is not None
    assert found.last.inputs[1] is not None
    assert found.last.inputs[1].name == "norm"


def test_scalars_and_parallel_layers_are_fine() -> None:
    nodes = f"""
        e = Gather <axis: int = 0> (table, tokens)
        x = Mul (e, c)
        n = {NORM} (x, gamma)
        a = MatMul (n, w)
        b = MatMul (n, v)
        s = Add (x, a)
        h = Add (b, s)
        {LAST}"""
    weights = {"w": f32(8, 8), "v": f32(8, 8), "c": f32(1), "gamma": f32(8), "one": f32(8)}
    model = model_of(SIGNATURE, nodes, weights | {"table": f32(9, 8), "head": f32(8, 9)})
    found = find_residual(model)
    assert [node.outputs[0].name for node in found.writers] == ["a", "b"]
    assert len(found.readers) == 1


E = "e = Gather <axis: int = 0> (table, tokens)"
REFUSED = {
    f"{E}\nf = Gather <axis: int = 0> (table, tokens)\nh = Add (e, f)\n{LAST}": (
        "tokens do not go through one embedding"
    ),
    f"{E}\nh = Add (e, gamma)\n{LAST}": (
        "Add: what it adds to the residual stream is no linear layer's own"
    ),
    f"{E}\ns = {NORM} (e, gamma)\na = MatMul (s, w)\nt = Sigmoid (a)\nh = Add (e, t)\n{LAST}": (
        "Add: what it adds to the residual stream is no linear layer's own"
    ),
    f"{E}\ns = {NORM} (e, gamma)\nt = MatMul (s, w)\na = MatMul (t, w)\nh = Add (e, a)\n{LAST}": (
        "RMSNormalization: it has other readers than linear layers' own"
    ),
    f"{E}\na = MatMul (e, w)\nh = Add (e, a)\n{LAST}": "MatMul: a MatMul reads the residual stream",
    f"{E}\ns = Mul (e, gamma)\na = MatMul (s, w)\nh = Add (e, a)\n{LAST}": (
        "Mul: a Mul reads the residual stream"
    ),
    f"{E}\ns = LayerNormalization <axis: int = -1> (e, gamma)\na = MatMul (s, w)\n"
    f"h = Add (e, a)\n{LAST}": (
        "LayerNormalization: a LayerNormalization reads the residual stream"
    ),
    f"{E}\ns = {NORM} (e, gamma)\na = MatMul (s, w)\nb = Add (a, s)\nh = Add (e, a)\n{LAST}": (
        "RMSNormalization: it has other readers than linear layers' own"
    ),
    f"{E}\ns = {NORM} (e, gamma)\nt = Sigmoid (s)\na = MatMul (t, w)\nh = Add (e, a)\n{LAST}": (
        "RMSNormalization: it has other readers than linear layers' own"
    ),
    f"{E}\ns = {NORM} (e, one)\na = MatMul (s, w)\nh = Add (e, a)\n{LAST}": (
        "RMSNormalization: its scale is computed or used elsewhere too"
    ),
    f"{E}\ns = {NORM} (e, gamma)\na = MatMul (s, w)\nh = Add (e, a)\nz = Sigmoid (h)\n"
    "y = MatMul (z, head)": "Sigmoid: a Sigmoid reads the residual stream",
}


@pytest.mark.parametrize("nodes", REFUSED)
def test_streams_that_cannot_be_turned(nodes: str) -> None:
    weights = {"w": f32(8, 8), "gamma": f32(8), "one": f32(8), "head": f32(8, 9)}
    used = {name: array for name, array in weights.items() if name in nodes}
    with pytest.raises(NotTurnableError) as caught:
        find_residual(model_of(SIGNATURE, nodes, used | {"table": f32(9, 8)}))
    assert str(caught.value) == REFUSED[nodes]
