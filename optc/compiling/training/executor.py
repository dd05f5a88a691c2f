"""A dense form as a PyTorch module: an interpreter of its graph, whatever model that is of."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx_ir as ir
import torch
import torch.nn.functional as F  # noqa: N812 - the field's name for it
from torch import Tensor, nn

from optc.compiling.training.operators import OPERATORS, Function
from optc.compiling.training.weights import FullWeight, Weight
from optc.errors import UnsupportedError
from optc.ir.forms.decoder import Dense
from optc.ir.graph import constant
from optc.ir.linear import Linear, find_linear, head_of
from optc.ir.tensors import ModelTensor, model_tensors


@dataclass(frozen=True)
class _Step:
    """A node: what computes it, and the names of what it reads and gives."""

    function: Function
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    attributes: Mapping[str, Any]


class DenseExecutor(nn.Module):
    """Runs a dense form on tokens [B, S]; its tensors are parameters.

    The head is apart: `hidden` gives its input [B, S, D], and `logits` what follows of as many rows
    as memory has room for. A tensor that the graph sees twice is one parameter.

    Args:
        model: Dense form.

    Attributes:
        tensors: The model's, by name.
        weights: How each tensor is computed; `set_weight` changes that.

    Raises:
        UnsupportedError: An operator that no dense form has, or logits that come from no linear
            layer.
    """

    def __init__(self, model: ir.Model) -> None:
        super().__init__()
        Dense.of(model)
        self.tensors: dict[str, ModelTensor] = {one.name: one for one in model_tensors(model)}
        self.weights: dict[str, Weight] = {}
        self._modules_by_name = nn.ModuleList()
        self._seen_as = {
            str(value.name): one.name for one in self.tensors.values() for value in one.initializers
        }
        self._constants: dict[str, Tensor] = {}
        head = head_of(model)
        if head is None:
            raise UnsupportedError(
                "the logits come from no linear layer", where=str(model.graph.outputs[0].name)
            )
        self._hidden, self._logits = str(head.x.name), str(model.graph.outputs[0].name)
        body, tail = _divided(model, head)
        self._body = [self._step(node) for node in body]
        self._tail = [self._step(node) for node in tail]
        self._last_reads = _last_reads(self._body)
        for one in self.tensors.values():
            self.set_weight(one.name, FullWeight(torch.from_numpy(one.rows())))

    def tensor_of(self, initializer: str) -> str:
        """Name of the tensor that an initializer sees."""
        return self._seen_as[initializer]

    def set_weight(self, name: str, weight: Weight) -> None:
        """Compute a tensor in another way from now on."""
        self.weights[name] = weight
        self._modules_by_name = nn.ModuleList(self.weights.values())

    def effective(self) -> dict[str, Tensor]:
        """All tensors as they are used, with their gradients: to be taken once for each step."""
        return {name: weight() for name, weight in self.weights.items()}

    def hidden(self, tokens: Tensor, tensors: Mapping[str, Tensor]) -> Tensor:
        """The head's input [B, S, D] of tokens [B, S] at positions 0 … S - 1.

        Args:
            tokens: Ids, int64.
            tensors: Of `effective`.
        """
        positions = torch.arange(tokens.shape[1], device=tokens.device).expand(tokens.shape)
        values = {"input_ids": tokens, "position_ids": positions}
        self._run(self._body, values, tensors, self._last_reads)
        return values[self._hidden]

    def logits(self, hidden: Tensor, tensors: Mapping[str, Tensor]) -> Tensor:
        """Logits [..., V], float32, of rows of the head's input [..., D]."""
        values = {self._hidden: hidden}
        self._run(self._tail, values, tensors, {})
        return values[self._logits].float()

    def _run(
        self,
        steps: Iterable[_Step],
        values: dict[str, Tensor],
        tensors: Mapping[str, Tensor],
        last_reads: Mapping[int, tuple[str, ...]],
    ) -> None:
        for index, step in enumerate(steps):
            operands = [self._operand(name, values, tensors) for name in step.inputs]
            result = step.function(operands, step.attributes)
            found = result if isinstance(result, tuple) else (result,)
            values.update(zip(step.outputs, found, strict=True))
            for name in last_reads.get(index, ()):
                if name != self._hidden:
                    values.pop(name, None)

    def _operand(
        self, name: str, values: Mapping[str, Tensor], tensors: Mapping[str, Tensor]
    ) -> Tensor | None:
        if not name:
            return None
        if name in values:
            return values[name]
        if name in self._seen_as:
            return tensors[self._seen_as[name]]
        held = self._constants[name]
        device = next(iter(tensors.values())).device
        if held.device != device:
            held = self._constants[name] = held.to(device)
        return held

    def _step(self, node: ir.Node) -> _Step:
        function = OPERATORS.get((node.domain or "", node.op_type))
        if function is None:
            raise UnsupportedError(f"{node.op_type} has no form in training", where=str(node.name))
        if find_linear(node) is not None:
            function = _linear
        for value in node.inputs:
            if value is not None and str(value.name) not in self._seen_as:
                tensor = constant(value)
                if tensor is not None:
                    array = np.ascontiguousarray(tensor.numpy())
                    self._constants[str(value.name)] = torch.from_numpy(array.copy())
        return _Step(
            function,
            tuple("" if value is None else str(value.name) for value in node.inputs),
            tuple(str(value.name) for value in node.outputs),
            {name: _plain(one.value) for name, one in node.attributes.items()},
        )


def _linear(operands: Any, attributes: Any) -> Tensor:
    """x [..., K] by the rows [N, K] of a layer."""
    x, rows = operands
    return F.linear(x, rows)


def _plain(value: Any) -> Any:
    return value.decode() if isinstance(value, bytes) else value


def _divided(model: ir.Model, head: Linear) -> tuple[list[ir.Node], list[ir.Node]]:
    """The nodes that lead to the head's input, and the head with what follows, in order."""
    needed: set[ir.Node] = set()
    stack = [head.x]
    while stack:
        node = stack.pop().producer()
        if node is not None and node not in needed:
            needed.add(node)
            stack.extend(value for value in node.inputs if value is not None)
    nodes = [node for node in model.graph if node.op_type != "Constant"]
    return [n for n in nodes if n in needed], [n for n in nodes if n not in needed]


def _last_reads(steps: list[_Step]) -> dict[int, tuple[str, ...]]:
    """Names that no later step reads, by the step that reads them last."""
    last = {name: index for index, step in enumerate(steps) for name in step.inputs if name}
    found: dict[int, list[str]] = {}
    for name, index in last.items():
        found.setdefault(index, []).append(name)
    return {index: tuple(names) for index, names in found.items()}
