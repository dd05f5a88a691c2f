"""Nodes of a model as a program on PyTorch tensors: an interpreter of whatever graph they are."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import onnx_ir as ir
import torch
from torch import Tensor

from optc.ir.experts import find_expert_linear
from optc.ir.functions import is_op
from optc.ir.graph import constant
from optc.ir.linear import find_linear
from optc.ir.weights import Array, LazyWeight
from optc.proof.reference.execution.layout import by_rows
from optc.proof.reference.execution.node import Attributes, Function
from optc.proof.reference.execution.operators import LINEAR, OPERATORS
from optc.proof.reference.partition import is_constant

#: Gives the function of a node that is none of the dense form's, or refuses it. The function takes
#: None for constant operands: they are its own affair, whatever their types.
Other = Callable[[ir.Node], Function]
#: Whether a constant is a weight: one that runs are given.
IsWeight = Callable[[ir.Value], bool]
#: Operators whose further operands say shapes and places: these stay on the CPU.
_SHAPED = ("Slice", "Split", "Squeeze", "Unsqueeze")


@dataclass(frozen=True)
class _Operand:
    """An operand of a node.

    Attributes:
        value: The value.
        turned: It is held the other way round than the node takes it.
        on_cpu: It is a constant that is read on the CPU.
    """

    value: ir.Value
    turned: bool
    on_cpu: bool


@dataclass(frozen=True)
class _Step:
    """A node: what computes it, what it reads and gives, and what nothing needs after it."""

    function: Function
    operands: tuple[_Operand | None, ...]
    outputs: tuple[ir.Value, ...]
    attributes: Attributes
    frees: tuple[ir.Value, ...] = ()


class Program:
    """Some nodes of a model, ready to be run.

    Constants that are no weights are read when the program is made. Whatever `by_rows` says so of
    is given, and held, by rows.

    Args:
        nodes: In topological order; what computes constants that they read comes along.
        inputs: Values that every run is given.
        wanted: Values that it gives.
        other: Of operators that are none of the dense form's.
        is_weight: Asked of constants.

    Attributes:
        weights: Those that the nodes read: runs are given them, too.

    Raises:
        ValueError: The nodes read a value that is neither given nor constant.
    """

    def __init__(
        self,
        nodes: Iterable[ir.Node],
        inputs: Iterable[ir.Value],
        wanted: Sequence[ir.Value],
        other: Other,
        is_weight: IsWeight,
    ) -> None:
        self.weights: list[ir.Value] = []
        self._wanted, self._other, self._is_weight = tuple(wanted), other, is_weight
        self._known = set(inputs)
        self._constants: dict[ir.Value, Tensor] = {}
        self._moved: dict[torch.device, dict[ir.Value, Tensor]] = {}
        steps: list[_Step] = []
        for node in nodes:
            self._add(node, steps)
        self._steps = _with_frees(steps, {*self._wanted, *self._constants})

    def run(self, values: Mapping[ir.Value, Tensor], device: torch.device) -> list[Tensor]:
        """The wanted values.

        Args:
            values: Inputs and weights.
            device: Where they lie.
        """
        known = {**self._constants_on(device), **values}
        for step in self._steps:
            operands = [self._operand(one, known) for one in step.operands]
            result = step.function(operands, step.attributes)
            found = result if isinstance(result, tuple) else (result,)
            known.update(zip(step.outputs, found, strict=False))
            del operands, result, found
            for value in step.frees:
                known.pop(value, None)
        return [known[value] for value in self._wanted]

    def _operand(self, operand: _Operand | None, known: Mapping[ir.Value, Tensor]) -> Tensor | None:
        if operand is None:
            return None
        if operand.on_cpu:
            return self._constants[operand.value]
        found = known[operand.value]
        return found.mT if operand.turned else found

    def _constants_on(self, device: torch.device) -> Mapping[ir.Value, Tensor]:
        if device not in self._moved:
            self._moved[device] = {v: one.to(device) for v, one in self._constants.items()}
        return self._moved[device]

    def _add(self, node: ir.Node, steps: list[_Step]) -> None:
        """A step for the node, once, behind those of the constants that it reads."""
        if all(value in self._known for value in node.outputs):
            return
        rows = find_linear(node) is not None or find_expert_linear(node) is not None
        function = _function(node, rows)
        read = [
            None if value is None or (function is None and self._is_foreign(value)) else value
            for value in node.inputs
        ]
        for value in read:
            if value is not None and value not in self._known:
                self._add_constant(value, steps)
        operands = [
            None if value is None else self._operand_of(node, place, value, rows)
            for place, value in enumerate(read)
        ]
        attributes = {name: _plain(one.value) for name, one in node.attributes.items()}
        function = function or self._other(node)
        steps.append(_Step(function, tuple(operands), tuple(node.outputs), attributes))
        self._known.update(node.outputs)

    def _is_foreign(self, value: ir.Value) -> bool:
        return value not in self._known and is_constant(value)

    def _add_constant(self, value: ir.Value, steps: list[_Step]) -> None:
        producer = value.producer()
        if constant(value) is not None:
            if self._is_weight(value):
                self.weights.append(value)
            else:
                self._constants[value] = own_tensor(value)
            self._known.add(value)
        elif producer is not None and is_constant(value):
            self._add(producer, steps)
        else:
            raise ValueError(f"the program reads {value.name}, which it is not given")

    def _operand_of(self, node: ir.Node, place: int, value: ir.Value, rows: bool) -> _Operand:
        shapes = place > 0 and is_op(node, *_SHAPED)
        return _Operand(value, by_rows(value) and not rows, shapes and value in self._constants)


def own_tensor(value: ir.Value) -> Tensor:
    """The contents of a constant as programs hold them, on the CPU; not to be written to.

    Raises:
        ValueError: It is none.
    """
    tensor = constant(value)
    if tensor is None:
        raise ValueError(f"{value.name} is no constant")
    if not by_rows(value):
        return tensor_of(tensor.numpy())
    if isinstance(tensor, LazyWeight) and tensor.transposed:
        return tensor_of(tensor.read_rows(0, tensor.rows_shape[0]))
    return tensor_of(tensor.numpy().T)


def tensor_of(array: Array) -> Tensor:
    """An array as a tensor on the CPU, without a copy where its memory is in order; what is mapped
    from a file is not to be written to."""
    fixed = np.ascontiguousarray(array).reshape(array.shape)
    if fixed.flags.writeable or not fixed.size:
        return torch.from_numpy(fixed if fixed.flags.writeable else fixed.copy())
    return _read_only(fixed)


def _read_only(array: Array) -> Tensor:
    """`torch.from_numpy` warns of such arrays, which weights mapped from files are."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "The given NumPy array is not writable")
        return torch.from_numpy(array)


def _function(node: ir.Node, rows: bool) -> Function | None:
    """The function of the node; None if it is no operator of the dense form."""
    if is_op(node, "MatMul") and rows:
        return LINEAR
    if node.op_type == "ExpertMatMul" and not rows:
        return None  # its weight is not by rows
    return OPERATORS.get((node.domain or "", node.op_type))


def _with_frees(steps: Sequence[_Step], kept: set[ir.Value]) -> list[_Step]:
    """The steps, each with the values that none after it reads, ``kept`` ones left out."""
    last: dict[ir.Value, int] = {}
    for index, step in enumerate(steps):
        read = (one.value for one in step.operands if one is not None)
        last.update(dict.fromkeys([*step.outputs, *read], index))
    frees: dict[int, list[ir.Value]] = {}
    for value, index in last.items():
        if value not in kept:
            frees.setdefault(index, []).append(value)
    return [replace(step, frees=tuple(frees.get(i, ()))) for i, step in enumerate(steps)]


def _plain(value: Any) -> Any:
    return value.decode() if isinstance(value, bytes) else value
