"""A dense form as a PyTorch module whose tensors are parameters, whatever model it is of."""

from __future__ import annotations

from collections.abc import Mapping

import onnx_ir as ir
import torch
from torch import Tensor, nn

from optc.compiling.training.weights import FullWeight, Weight
from optc.errors import UnsupportedError
from optc.ir.experts import first_expert_matmul
from optc.ir.forms.decoder import Dense
from optc.ir.linear import Linear, head_of
from optc.ir.tensors import ModelTensor, model_tensors
from optc.proof.reference.execution.node import Function
from optc.proof.reference.execution.program import Program


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
        UnsupportedError: An operator that no dense form has, or that has no gradients here; or
            logits that come from no linear layer.
    """

    def __init__(self, model: ir.Model) -> None:
        super().__init__()
        Dense.of(model)
        check_trainable(model)
        self.tensors: dict[str, ModelTensor] = {one.name: one for one in model_tensors(model)}
        self.weights: dict[str, Weight] = {}
        self._modules_by_name = nn.ModuleList()
        self._seen_as = {
            value: one.name for one in self.tensors.values() for value in one.initializers
        }
        self._by_initializer = {str(value.name): name for value, name in self._seen_as.items()}
        head = head_of(model)
        if head is None:
            raise UnsupportedError(
                "the logits come from no linear layer", where=str(model.graph.outputs[0].name)
            )
        self._inputs, self._hidden = tuple(model.graph.inputs), head.x
        body, tail = _divided(model, head)
        inputs = (*self._inputs, *self._seen_as)
        self._body = Program(body, inputs, [head.x], _refuse, lambda value: False)
        logits = model.graph.outputs[:1]
        self._tail = Program(tail, (head.x, *self._seen_as), logits, _refuse, lambda value: False)
        for one in self.tensors.values():
            self.set_weight(one.name, FullWeight(torch.from_numpy(one.rows())))

    def tensor_of(self, initializer: str) -> str:
        """Name of the tensor that an initializer sees."""
        return self._by_initializer[initializer]

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
        given = dict(zip(self._inputs, (tokens, positions), strict=False))
        (hidden,) = self._body.run({**given, **self._values(tensors)}, tokens.device)
        return hidden

    def logits(self, hidden: Tensor, tensors: Mapping[str, Tensor]) -> Tensor:
        """Logits [..., V], float32, of rows of the head's input [..., D]."""
        given = {self._hidden: hidden, **self._values(tensors)}
        (logits,) = self._tail.run(given, hidden.device)
        return logits.float()

    def _values(self, tensors: Mapping[str, Tensor]) -> dict[ir.Value, Tensor]:
        """The tensors by the initializers that see them."""
        return {value: tensors[name] for value, name in self._seen_as.items()}


def check_trainable(model: ir.Model) -> None:
    """Refuse experts, which no training takes: by the graph alone, before passes take long.

    Raises:
        UnsupportedError: A model has some.
    """
    if (node := first_expert_matmul(model.graph)) is not None:
        _refuse(node)


def _refuse(node: ir.Node) -> Function:
    raise UnsupportedError(
        f"{node.op_type} has no form in training",
        where=str(node.name),
        hint="train the model where it comes from, with PyTorch or PEFT, and compile the result; a "
        "compile without --trained takes the model as it is",
    )


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
