"""Runs a region on numbers of choice: its operand, its angles' cosines and sines, positions."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx_ir as ir
import onnxruntime
from onnxruntime.capi.onnxruntime_pybind11_state import Fail, InvalidArgument, RuntimeException

from optc.ir.functions import is_op
from optc.passes.canonicalize.dataflow import dims, operand
from optc.passes.canonicalize.probing.region import TRIG, Dependence, Region
from optc.proof.reference.submodel import extract, open_session, run_session

Array = npt.NDArray[Any]
Float32 = npt.NDArray[np.float32]
#: What ONNX Runtime raises where an operator fails on its operands.
_RUN_ERRORS = (InvalidArgument, Fail, RuntimeException)
#: Angles grow by the positions to this relative error.
_TOLERANCE = 1e-5


class Unreadable(Exception):  # noqa: N818 - it never leaves probing
    """A region cannot be read; the text is the reason."""


@dataclass(frozen=True)
class Part:
    """A part of the graph as a session.

    Attributes:
        session: It.
        inputs: The values that it is given.
        outputs: The values that it gives.
        fixed: Contents of weights that it reads.
    """

    session: onnxruntime.InferenceSession
    inputs: tuple[ir.Value, ...]
    fixed: dict[str, Array]

    def run(self, feeds: dict[ir.Value, Array]) -> list[Array]:
        """Results for contents of all inputs.

        Raises:
            Unreadable: ONNX Runtime fails, as where a table has no row for a position.
        """
        named = {str(value.name): feeds[value] for value in self.inputs}
        try:
            return run_session(self.session, named | self.fixed)
        except _RUN_ERRORS as error:
            raise Unreadable("it does not run for one token at any position") from error


class Probes:
    """A region under numbers.

    Args:
        model: The model.
        region: Part of it, with sources. Their columns are numbered through, one source behind
            the other.
        depends: What depends on positions.

    Raises:
        Unreadable: Angles are not positions times frequencies, or positions do more.
    """

    def __init__(self, model: ir.Model, region: Region, depends: Dependence) -> None:
        if not region.sources:
            raise ValueError("the region has no source")
        self._sources = region.sources
        widths = [int(dims(source)[-1] or 0) for source in region.sources]
        self.width, self._ends = sum(widths), np.cumsum(widths)[:-1]
        self._positions = depends.positions
        self._names = dims(depends.positions)
        behind, self.trig = _walk(region.of_positions, TRIG)
        if any(_reads(node, depends.positions) for node in behind):
            # angles are read at any position, anything else at a few
            raise Unreadable("it depends on positions by more than angles")
        before, _ = _walk([operand(node, 0) for node in self.trig])
        inside = {*region.nodes, *behind, *before}
        self._shaped = _shaped(inside, (*self._sources, self._positions))
        given = [depends.positions, *self._shaped, *self._sources]
        order = {node: index for index, node in enumerate(model.graph)}

        def part(nodes: Iterable[ir.Node], inputs: list[ir.Value], outputs: list[ir.Value]) -> Part:
            chosen = sorted(set(nodes), key=lambda node: order[node])
            cut = extract(model, chosen, inputs, outputs)
            return Part(open_session(cut.model, 1), tuple(inputs), cut.feeds())

        turned = [node.outputs[0] for node in self.trig]
        self._whole = part({*inside, *self.trig}, given, [region.result])
        cut = {*region.nodes, *behind}
        # without what makes the angles: values of it of which the rest reads the shape
        self._beside = _shaped(cut, (*given, *turned))
        self._cut = part(cut, [*given, *self._beside, *turned], [region.result])
        self.frequencies: list[Float32] = []
        if self.trig:
            angles = [operand(node, 0) for node in self.trig]
            inputs = [depends.positions, *self._shaped]
            self.frequencies = self._read_frequencies(part(before, inputs, angles))

    def _read_frequencies(self, angles: Part) -> list[Float32]:
        """The growth of each angle from one position to the next."""

        def at(position: int) -> list[Array]:
            feeds = self._sizes(1, 1) | {self._positions: np.full((1, 1), position, np.int64)}
            return angles.run(feeds)

        first = at(1)
        for position in (0, 3, 200):
            for now, one in zip(at(position), first, strict=True):
                if not np.allclose(now, one * position, rtol=_TOLERANCE, atol=1e-12):
                    raise Unreadable("its angles are not positions times frequencies")
        return first

    def _sizes(
        self, batch: int, tokens: int, beside: Sequence[ir.Value] = ()
    ) -> dict[ir.Value, Array]:
        """Contents, all zero, of values of which only the shape is read."""
        sizes = dict(zip(self._names, (batch, tokens), strict=True))
        found = {}
        for value in (*self._shaped, *beside):
            shape = [d if isinstance(d, int) else sizes.get(d) for d in dims(value)]
            if None in shape or value.dtype is None:
                raise Unreadable(f"it reads the shape {dims(value)} of {value.name}")
            found[value] = np.zeros([int(d or 0) for d in shape], value.dtype.numpy())
        return found

    def once(
        self, x: Float32, cos: Callable[[Float32], Float32], sin: Callable[[Float32], Float32]
    ) -> Float32:
        """The result for one token x [W], flat, with ``cos`` and ``sin`` of frequencies."""
        feeds = self._sizes(1, 1, self._beside) | {self._positions: np.zeros((1, 1), np.int64)}
        feeds |= self._parts(x.reshape(1, 1, -1))
        for node, values in zip(self.trig, self.frequencies, strict=True):
            function = cos if is_op(node, "Cos") else sin
            feeds[node.outputs[0]] = function(values).astype(np.float32)
        return np.ravel(self._cut.run(feeds)[0])

    def honest(self, x: Float32, positions: npt.NDArray[np.int64]) -> Float32:
        """The result for x [B, S, W] at positions [B, S], nothing put in its place."""
        feeds = self._sizes(*positions.shape) | {self._positions: positions} | self._parts(x)
        return self._whole.run(feeds)[0]

    def _parts(self, x: Float32) -> dict[ir.Value, Float32]:
        """The columns of each source."""
        return dict(zip(self._sources, np.split(x, self._ends, axis=-1), strict=True))


def _walk(
    values: list[ir.Value], until: tuple[str, ...] = ()
) -> tuple[set[ir.Node], list[ir.Node]]:
    """The nodes that make ``values``, back to operators ``until``, and those."""
    nodes: set[ir.Node] = set()
    ends: dict[ir.Node, None] = {}
    stack = list(values)
    while stack:
        node = stack.pop().producer()
        if node is None or node in nodes:
            continue
        if is_op(node, *until):
            ends[node] = None
            continue
        nodes.add(node)
        if not is_op(node, "Shape"):
            stack.extend(v for v in node.inputs if v is not None)
    return nodes, list(ends)


def _reads(node: ir.Node, value: ir.Value) -> bool:
    """True if ``node`` reads more of ``value`` than its shape."""
    return value in node.inputs and not is_op(node, "Shape")


def _shaped(nodes: set[ir.Node], given: Sequence[ir.Value]) -> list[ir.Value]:
    """Values from outside, but for ``given``, of which ``nodes`` read no more than the shape."""
    read = [operand(node, 0) for node in nodes if is_op(node, "Shape")]
    outside = [v for v in read if v.producer() not in nodes and v not in given]
    return list(dict.fromkeys(outside))
