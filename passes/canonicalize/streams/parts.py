"""A value with axes of streams as a grid of values that have none."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx_ir as ir

from optc.ir.graph import add_initializer, int_initializer
from optc.passes.canonicalize.dataflow import dims, emit, rank, scalar

#: The most parts along an axis.
MOST = 8
#: A grid of values by their places along axes.
Grid = npt.NDArray[Any]
Axes = tuple[int, ...]


@dataclass(frozen=True)
class Parts:
    """The parts of a value along some of its axes, in their order.

    Attributes:
        grid: Values [B, S, N], N being 1 where the value has no axis beside those and the tokens'.
        stacked: Whether values were stacked somewhere, which makes the axis one of streams and not
            of heads.
    """

    grid: Grid
    stacked: bool = False


Rule = Callable[["Partition", ir.Node, Axes], Parts | None]


@dataclass
class Partition:
    """Makes parts of values, each once.

    Attributes:
        graph: Where nodes are inserted.
        lead: Sizes of the axes of batch and tokens.
        rules: By operator, the parts of its result.
        before: In front of this node.
    """

    graph: ir.Graph
    lead: list[int | str | None]
    rules: dict[str, Rule]
    before: ir.Node
    _known: dict[tuple[ir.Value, Axes], Parts | None] = field(default_factory=dict)
    _numbers: dict[int, ir.Value] = field(default_factory=dict)

    def of(self, value: ir.Value | None, axes: Sequence[int]) -> Parts | None:
        """The parts of a value along ``axes``, ascending; None if there are none that I know."""
        if value is None:
            return None
        key = value, tuple(axes)
        if key not in self._known:
            self._known[key] = self._parts(*key)
        return self._known[key]

    def made(self, node: ir.Node, axes: Axes) -> Parts | None:
        """The parts of a node's result by the rule of its operator."""
        rule = self.rules.get(node.op_type)
        return rule(self, node, axes) if rule is not None and not node.domain else None

    def _parts(self, value: ir.Value, axes: Axes) -> Parts | None:
        if not self._fits(value, axes):
            return None
        if not axes:
            return Parts(np.array(value, dtype=object)) if rank(value) == 3 else None
        if rank(value) == 3 and axes == (2,):  # numbers of a token
            return Parts(self.slices(value, 1))
        node = value.producer()
        return None if node is None else self.made(node, axes)

    def _fits(self, value: ir.Value, axes: Axes) -> bool:
        """True if but for ``axes``, which are short, there are those of tokens and the last one."""
        sizes = dims(value)
        kept = [size for axis, size in enumerate(sizes) if axis not in axes]
        short = all(isinstance(sizes[a], int) and int(str(sizes[a])) <= MOST for a in axes)
        return (
            short
            and value.dtype in (ir.DataType.FLOAT, None)
            and kept[:2] == self.lead
            and len(kept) in (2, 3)
            and all(isinstance(size, int) for size in kept[2:])
        )

    def emit(self, op_type: str, inputs: Sequence[Any], width: Any, **attributes: Any) -> ir.Value:
        """A new value [B, S, width]."""
        like = next(value for value in inputs if value is not None)
        return emit(self.before, op_type, [*inputs], like, attributes, [*self.lead, width])

    def slices(self, value: ir.Value, size: int) -> Grid:
        """The columns of a value, ``size`` together."""
        total = dims(value)[-1]
        assert isinstance(total, int)
        grid = np.empty(total // size, dtype=object)
        for index in range(len(grid)):
            ends = index * size, (index + 1) * size, -1
            grid[index] = self.emit("Slice", [value, *map(self._number, ends)], size)
        return grid

    def _number(self, number: int) -> ir.Value:
        """One number as an operand."""
        if number not in self._numbers:
            name = f"column_{number}" if number >= 0 else "last_axis"
            self._numbers[number] = int_initializer(self.graph, [number], name)
        return self._numbers[number]

    def total(self, values: Sequence[ir.Value], mean: bool = False) -> ir.Value:
        """The sum or the mean of values."""
        result, width = values[0], dims(values[0])[-1]
        for value in values[1:]:
            result = self.emit("Add", [result, value], width)
        if not mean or len(values) == 1:
            return result
        number = np.array(1 / len(values), np.float32)
        factor = add_initializer(self.graph, ir.tensor(number), "one_of_streams")
        return self.emit("Mul", [result, factor], width)


def is_number(value: ir.Value | None) -> bool:
    """True of a constant that is one number for all parts."""
    return value is None or scalar(value) is not None
