"""From the ragged-step model to a `Program`: the walk over the nodes and what it has gathered.

Everything here and in the ``lower_*`` modules works without TVM, on names and shapes only.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx_ir as ir

from optc.backends.tvm.program import Call, Dim, Tensor
from optc.backends.tvm.weights.sparse_weights import SparseWeights
from optc.backends.tvm.weights.weight_layouts import raw_weight
from optc.backends.tvm.weights.weights_file import PackedWeight
from optc.errors import UnsupportedError
from optc.runtime.executable.executable import LayerKV

#: Engine names of the ONNX element types that values between kernels may have.
DTYPES = {
    ir.DataType.FLOAT: "float32",
    ir.DataType.INT32: "int32",
    ir.DataType.INT64: "int64",
    ir.DataType.INT8: "int8",
    ir.DataType.BOOL: "bool",
}
#: Integers of which the kernels keep one sum (of an activation row).
SUM_WIDTH = 32

Check = Callable[[ir.Node], str]
Lower = Callable[["Lowering", ir.Node], None]


@dataclass(frozen=True)
class Handler:
    """The lowering of an operator.

    Attributes:
        lower: Appends the calls, or raises `Refused`.
        check: Empty if the node's attributes can be lowered, else the reason.
    """

    lower: Lower
    check: Check = lambda node: ""


class Refused(Exception):  # noqa: N818 - it never leaves the lowering
    """A node cannot be lowered; the text is the reason."""


@dataclass
class Lowering:
    """State of the walk over one graph.

    Attributes:
        tensors: Engine tensor of every value lowered so far.
        calls: Kernel calls in order.
        weights: Packed weights by key (initializer and layout); one copy of each.
        sums: Tensor with the sums of a quantized activation, by the name of its values.
        pairs: Rows of a quantized activation of 16 bits, of which each is two of 8, by that name.
        plans: The plan of the rows by expert, by the name of the tensor of chosen experts.
        groups: Number of KV groups.
        kv_layers: Shape and type of the K and V of every layer.
        two_level: Whether kernels take integer scales of groups; else they become float ones.
        sparse: Decides which weights are sparse.
        done: Nodes that an earlier one has taken in.
        failed: Reasons, by node, why something cannot be lowered.
    """

    groups: int
    kv_layers: Sequence[LayerKV]
    two_level: bool = True
    sparse: SparseWeights = field(default_factory=SparseWeights)
    tensors: dict[ir.Value, Tensor] = field(default_factory=dict)
    calls: list[Call] = field(default_factory=list)
    weights: dict[str, PackedWeight] = field(default_factory=dict)
    sums: dict[str, Tensor] = field(default_factory=dict)
    pairs: dict[str, Dim] = field(default_factory=dict)
    plans: dict[str, tuple[Tensor, ...]] = field(default_factory=dict)
    done: set[ir.Node] = field(default_factory=set)
    failed: list[str] = field(default_factory=list)
    _poisoned: set[ir.Value] = field(default_factory=set)
    _count: int = 0

    def run(self, graph: ir.Graph, handlers: dict[tuple[str, str], Handler]) -> None:
        """Lower all nodes.

        Raises:
            UnsupportedError: Some cannot be lowered; lists every one with its reason.
        """
        for node in graph:
            if node not in self.done:
                self._node(node, handlers)
        if self.failed:
            shown = "; ".join(self.failed[:20])
            more = len(self.failed) - 20
            raise UnsupportedError(
                f"{len(self.failed)} nodes cannot be lowered: {shown}"
                + (f"; and {more} more" if more > 0 else ""),
                where="tvm backend",
                hint="see docs/normal-form.md for what the backend takes",
            )

    def _node(self, node: ir.Node, handlers: dict[tuple[str, str], Handler]) -> None:
        if any(v in self._poisoned for v in node.inputs if v is not None):
            self._poisoned.update(node.outputs)  # the cause is listed already
            return
        reason = check_node(node, handlers)
        if not reason:
            try:
                handlers[node.domain, node.op_type].lower(self, node)
            except Refused as refusal:
                reason = str(refusal)
        if reason:
            self.failed.append(f"{node.name or '(unnamed)'} ({node.op_type}): {reason}")
            self._poisoned.update(node.outputs)

    def fresh(self, dtype: str, shape: Sequence[Dim]) -> Tensor:
        """A new intermediate tensor."""
        self._count += 1
        return Tensor(f"t{self._count}", dtype, tuple(shape))

    def call(
        self,
        kernel: str,
        config: dict[str, Any],
        inputs: Sequence[Tensor],
        outputs: Sequence[tuple[str, Sequence[Dim]]],
        updated: Sequence[str] = (),
    ) -> list[Tensor]:
        """Append a call; returns its fresh tensors, given as (dtype, shape)."""
        results = [self.fresh(dtype, shape) for dtype, shape in outputs]
        names = tuple(t.name for t in inputs)
        self.calls.append(Call(kernel, config, names, tuple(results), tuple(updated)))
        return results

    def tensor(self, value: ir.Value | None) -> Tensor:
        """The engine tensor of an operand; an initializer becomes a float32 weight as it is."""
        if value is None:
            raise Refused("a required operand is absent")
        if value in self.tensors:
            return self.tensors[value]
        constant = ir.convenience.get_const_tensor(value)
        if constant is None:
            raise Refused(f"operand {value.name} is neither computed nor constant")
        self.tensors[value] = self.weight(
            f"{value.name}", lambda: raw_weight(str(value.name), constant)
        )[0]
        return self.tensors[value]

    def weight(self, key: str, pack: Callable[[], PackedWeight]) -> tuple[Tensor, ...]:
        """The tensors of a packed weight, packed once for each ``key``."""
        if key not in self.weights:
            self.weights[key] = pack()
        return self.weights[key].tensors

    def scalar(self, value: ir.Value | None) -> float | None:
        """The value of a constant with one element, else None."""
        if value is None or value in self.tensors:
            return None
        constant = ir.convenience.get_const_tensor(value)
        if constant is None or constant.size != 1:
            return None
        return float(constant.numpy().reshape(-1)[0])

    def integers(self, value: ir.Value | None) -> list[int] | None:
        """The numbers of a small integer constant, else None."""
        constant = None if value is None else ir.convenience.get_const_tensor(value)
        if constant is None:
            return None
        array: npt.NDArray[Any] = np.ravel(constant.numpy())
        return [int(x) for x in array]

    def initializer(self, value: ir.Value | None, what: str) -> ir.TensorProtocol:
        """The constant behind an operand that must be one."""
        constant = None if value is None else ir.convenience.get_const_tensor(value)
        if constant is None:
            raise Refused(f"the {what} must be constant")
        return constant


def check_node(node: ir.Node, handlers: dict[tuple[str, str], Handler]) -> str:
    """Empty if ``node``'s operator and attributes can be lowered, else the reason."""
    handler = handlers.get((node.domain, node.op_type))
    if handler is None:
        full = f"{node.domain}::{node.op_type}" if node.domain else node.op_type
        return f"operator {full} has no kernel"
    return handler.check(node)


def width_of(tensor: Tensor) -> int:
    """Size of the last axis, which is always a number.

    Raises:
        Refused: The last axis is symbolic or there is none.
    """
    if not tensor.shape or not isinstance(tensor.shape[-1], int):
        raise Refused(f"the last axis of {tensor.shape} is not a number")
    return tensor.shape[-1]


def rows_of(tensor: Tensor, dtype: str = "float32") -> Dim:
    """The row dimension of a tensor [rows, width].

    Raises:
        Refused: The tensor is not of two dimensions or of another type.
    """
    if len(tensor.shape) != 2 or tensor.dtype != dtype:
        raise Refused(f"expected {dtype} rows, got {tensor.dtype} {list(tensor.shape)}")
    return tensor.shape[0]


def times(factor: int, dim: Dim) -> Dim:
    """``factor`` times a dimension that is a number, or a symbol or so many times one."""
    if isinstance(dim, int):
        return factor * dim
    count, _, symbol = dim.rpartition("*")
    return f"{factor * int(count or 1)}*{symbol}"


def divided(dim: Dim, factor: int) -> Dim:
    """The dimension that is ``dim`` when it is taken ``factor`` times (`times`).

    Raises:
        Refused: There is none.
    """
    count, _, symbol = (str(dim), "", "") if isinstance(dim, int) else dim.rpartition("*")
    whole, rest = divmod(int(count or 1), factor)
    if rest:
        raise Refused(f"{dim} rows are not those of {factor} heads")
    if not symbol:
        return whole
    return symbol if whole == 1 else times(whole, symbol)


def round_up(value: int, multiple: int) -> int:
    """The least multiple of ``multiple`` that is not below ``value``."""
    return -(-value // multiple) * multiple
