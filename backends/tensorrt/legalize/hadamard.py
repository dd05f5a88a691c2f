"""`optc::BlockHadamard` in TensorRT's operators."""

from __future__ import annotations

from dataclasses import dataclass
from math import isqrt

import numpy as np
import onnx_ir as ir

from optc.ir.emit import Dims, Emitter
from optc.ir.functions.hadamard import hadamard_matrix


def block_hadamard(emit: Emitter, node: ir.Node) -> list[ir.Value]:
    """H X H over √B of every block as a square X, as the operator's body has it."""
    (x,) = node.inputs
    block, width = (node.attributes.get_int(name, 0) for name in ("block", "width"))
    if x is None:
        raise ValueError(f"{node.name}: it has no operand")
    whole = width // block * block
    inverse = bool(node.attributes.get_int("inverse", 0))
    steps = [_Step(emit, 0, whole, block, "")]
    if whole < width:
        steps.append(_Step(emit, width - block, width, block, "behind" if inverse else "before"))
    for step in reversed(steps) if inverse else steps:
        x = step.rotated(x, width)
    return [x]


@dataclass(frozen=True)
class _Step:
    """Blocks side by side over the channels ``first:last``, with bent signs before or behind."""

    emit: Emitter
    first: int
    last: int
    block: int
    signs: str

    def rotated(self, x: ir.Value, width: int) -> ir.Value:
        """``x`` [B, S, width] with these channels rotated."""
        sizes = [self.first, self.last - self.first, width - self.last]
        if self.last - self.first == width:
            return self._blocks(x, width)
        parts = self._split(x, [size for size in sizes if size])
        middle = int(self.first > 0)
        parts[middle] = self._blocks(parts[middle], sizes[1])
        return self.emit.op(self._name("joined"), "Concat", parts, ["B", "S", width], axis=-1)

    def _name(self, label: str) -> str:
        return f"{label}_{self.first}"

    def _split(self, x: ir.Value, sizes: list[int]) -> list[ir.Value]:
        node = ir.Node(
            "",
            "Split",
            [x, self.emit.integers(self._name("sizes"), sizes)],
            ir.convenience.convert_attributes({"axis": -1}),
            num_outputs=len(sizes),
            name=f"{x.name}.split_{self.first}",
        )
        for number, (value, size) in enumerate(zip(node.outputs, sizes, strict=True)):
            value.name = f"{x.name}.part_{self.first}_{number}"
            value.type, value.shape = ir.TensorType(ir.DataType.FLOAT), ir.Shape(["B", "S", size])
        self.emit.nodes.append(node)
        return list(node.outputs)

    def _blocks(self, x: ir.Value, width: int) -> ir.Value:
        side, emit, name = isqrt(self.block), self.emit, self._name
        squares: Dims = ["B", "S", width // self.block, side, side]
        matrix = emit.constant(name("matrix"), np.array(hadamard_matrix(side), np.float32))
        norm = emit.constant(name("norm"), np.array(1 / side, np.float32))
        split = emit.integers(name("squares"), [0, 0, width // self.block, side, side])
        value = emit.op(name("blocks"), "Reshape", [x, split], squares)
        if self.signs == "before":
            value = emit.op(name("signed"), "Mul", [value, matrix], squares)
        value = emit.op(name("left"), "MatMul", [matrix, value], squares)
        value = emit.op(name("scaled"), "Mul", [value, norm], squares)  # in range of float16
        value = emit.op(name("right"), "MatMul", [value, matrix], squares)
        if self.signs == "behind":
            value = emit.op(name("signed"), "Mul", [value, matrix], squares)
        merged = emit.integers(name("merged"), [0, 0, width])
        return emit.op(name("turned"), "Reshape", [value, merged], ["B", "S", width])
