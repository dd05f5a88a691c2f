"""`remove-no-ops` on text."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir
import pytest

from optc.passes.canonicalize.remove_no_ops import RemoveNoOps
from tests.passes.canonicalize.texts import after, exported, unchanged
from tests.support.ir_text import f32

CONSTANTS = {
    "zero": np.float32(0),
    "one": np.float32(1),
    "start": np.array([0]),
    "endless": np.array([2**63 - 1]),
    "eight": np.array([8]),
    "last": np.array([2]),
    "middle": np.array([1]),
    "same": np.array([0, 0, 8]),
    "column": f32(1, 1, 1) * 0,
}
SIGNATURE = "(float[B,S,8] x) => (float[B,S,8] y)"


@pytest.mark.parametrize(
    "node",
    [
        "Identity (x)",
        "Cast <to: int = 1> (x)",
        "Slice (x, start, endless, middle)",
        "Slice (x, start, eight, last)",
        "Reshape (x, same)",
        "Transpose <perm: ints = [0, 1, 2]> (x)",
        "Mul (one, x)",
        "Mul (x, one)",
        "Div (x, one)",
        "Add (zero, x)",
        "Sub (x, zero)",
        "Add (x, column)",
    ],
)
def test_removed(node: str) -> None:
    text, report = after(
        exported(SIGNATURE, f"z = {node} y = Neg (z)", {}, CONSTANTS), RemoveNoOps()
    )
    assert text == "y = Neg (x)"
    assert report.count == 1


@pytest.mark.parametrize(
    "node",
    [
        "Slice (x, start, eight, middle)",
        "Slice (x, middle, endless, middle)",
        "Div (one, x)",
        "Sub (zero, x)",
        "Mul (x, zero)",
        "Add (x, one)",
    ],
)
def test_kept(node: str) -> None:
    model = exported("(float[B,S,8] x) => (float[B,R,8] y)", f"y = {node}", {}, CONSTANTS)
    assert RemoveNoOps().run(model).count == 0


BIASED = "sizes = Shape (x) wide = Expand (bias, sizes) y = Add (x, wide)"


def test_a_constant_that_its_reader_broadcasts() -> None:
    def model() -> ir.Model:
        found = exported(SIGNATURE, BIASED, {}, {"bias": f32(8)})
        wide = next(n for n in found.graph if n.op_type == "Expand").outputs[0]
        wide.shape = ir.Shape(["B", "S", 8])  # as the exporter states it
        return found

    assert after(model(), RemoveNoOps())[0] == "y = Add (x, bias)"
    assert unchanged(model(), {"x": f32(2, 3, 8)}, RemoveNoOps()) == 0


@pytest.mark.parametrize(
    "nodes",
    [
        "sizes = Shape (x) wide = Expand (bias, sizes) z = Exp (wide) y = Add (x, z)",
        "sizes = Shape (x) wide = Expand (bias, sizes) y = Add (row, wide)",
        "sizes = Shape (x) row = Neg (bias) wide = Expand (row, sizes) y = Add (x, wide)",
    ],
)
def test_an_expansion_that_is_needed_stays(nodes: str) -> None:
    constants = {"bias": f32(8)} | ({"row": f32(8)} if "row =" not in nodes else {})
    found = exported(SIGNATURE, nodes, {}, {k: v for k, v in constants.items() if k in nodes})
    wide = next(n for n in found.graph if n.op_type == "Expand").outputs[0]
    wide.shape = ir.Shape(["B", "S", 8])
    assert RemoveNoOps().run(found).count == 0


def test_an_output_keeps_its_name() -> None:
    model = exported(SIGNATURE, "z = Neg (x) y = Identity (z)")
    assert after(model, RemoveNoOps())[0] == "y = Neg (x)"
    direct = exported(SIGNATURE, "y = Identity (x)")
    assert RemoveNoOps().run(direct).count == 0, "an input cannot be an output"
