"""The arithmetic of ``int8-fused`` on a transformers model in float32: what its loss is judged by.

It knows nothing of optc's passes. Every product that transformers' own code computes is seen here
before it is computed, and its operands are rounded to int8 and back:

- a product with weights: the weights with a scale for each output, the other operand with a scale
  for each token;
- queries times keys, softmax weights times values: queries, keys and values with a scale for each
  token and head; softmax weights stay float (engines keep 15 bits of them);
- a row of an embedding with a scale of its own.

The layer whose result chooses experts stays float, as the recipe says.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor
from torch.nn import Parameter
from torch.overrides import TorchFunctionMode
from transformers import PreTrainedModel

from optc.importer.capturing import recurrences

#: Rounds a tensor; what lies along the axis shares scales.
Rounding = Callable[[Tensor, int], Tensor]

_LARGEST = 127
_PRODUCTS = frozenset({"matmul", "__matmul__", "bmm", "mm"})
_LINEAR_GRADIENTS = ("MmBackward", "AddmmBackward", "LinearBackward")


def logits(
    model: PreTrainedModel, ids: npt.NDArray[np.int64], weights: Rounding | None = None
) -> npt.NDArray[np.float32]:
    """Logits [B, S, V] of tokens [B, S], all products in int8; ``weights`` rounds those, along an
    axis, if they are not int8."""
    model.set_experts_implementation("eager")
    tokens = torch.from_numpy(ids)
    float_weights = router_weights(model, tokens)
    mode = Int8Products(model, float_weights, weights)
    with torch.no_grad(), recurrences.replaced(model, mode.resting), mode:
        found = model(input_ids=tokens, use_cache=False).logits
    return found.float().numpy()


def in_groups(x: Tensor, axis: int, bits: int = 4, size: int = 32) -> Tensor:
    """``x`` in a few bits and back; groups along ``axis`` share a scale and an offset."""
    groups = x.movedim(axis, -1).unflatten(-1, (-1, size))
    least, greatest = groups.amin(-1, keepdim=True), groups.amax(-1, keepdim=True)
    scale = ((greatest - least) / ((1 << bits) - 1)).clamp_min(1e-12)
    found = ((groups - least) / scale).round() * scale + least
    return found.flatten(-2).movedim(-1, axis)


def rounded(x: Tensor, axis: int) -> Tensor:
    """``x`` in int8 and back, symmetric; what lies along ``axis`` shares a scale."""
    largest = x.abs().amax(dim=axis, keepdim=True)
    scale = torch.where(largest > 0, largest / _LARGEST, torch.ones_like(largest))
    return (x / scale).round() * scale


class Int8Products(TorchFunctionMode):
    """While it is active, products of the model's code have int8 operands.

    Args:
        model: Its parameters and buffers are weights; other operands are activations.
        float_weights: Weights whose layers stay float.
        weights: Rounds the others along an axis; `rounded` if None. Embeddings always have int8.
    """

    def __init__(
        self,
        model: torch.nn.Module,
        float_weights: Sequence[Tensor] = (),
        weights: Rounding | None = None,
    ) -> None:
        super().__init__()
        self._round = weights or rounded
        self._weights = {_memory(p) for p in (*model.parameters(), *model.buffers())}
        self._float = {_memory(weight) for weight in float_weights}
        self._rests = False

    def resting(self, function: Callable[..., Any], _: object) -> Callable[..., Any]:
        """A function whose own products stay float, as those of recurrences do."""

        def rested(*args: Any, **kwargs: Any) -> Any:
            self._rests = True
            try:
                return function(*args, **kwargs)
            finally:
                self._rests = False

        return rested

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Any,
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        """Round the operands of a product, then compute it."""
        kwargs = dict(kwargs or {})
        if self._rests:
            return func(*args, **kwargs)
        name = getattr(func, "__name__", "")
        if name == "linear" and not self._stays(args[1]):
            args = (rounded(args[0], -1), self._round(args[1], -1), *args[2:])
        elif name == "embedding":
            args = (args[0], rounded(args[1], -1), *args[2:])
        elif name in _PRODUCTS:
            args = self._operands(*args)
        elif name == "addmm":
            args = (args[0], *self._operands(*args[1:]))
        elif name == "baddbmm":
            first = kwargs.pop("batch1", None), kwargs.pop("batch2", None)
            pair = first if first[0] is not None else args[1:3]
            args = (args[0], *self._operands(*pair))
        return func(*args, **kwargs)

    def _operands(self, a: Tensor, b: Tensor) -> tuple[Tensor, Tensor]:
        """Operands of a @ b, rounded if it is a product with weights or of an attention."""
        if not (a.is_floating_point() and b.is_floating_point()) or a.shape[-1] == 1:
            return a, b  # an outer product: angles of positions
        if b.ndim == 2 or _memory(b) in self._weights:
            return (a, b) if self._stays(b) else (rounded(a, -1), self._round(b, -2))
        if _memory(a) in self._weights:
            return (self._round(a, -1), rounded(b, -2))
        if bool((a >= 0).all()):  # softmax weights; b are values by rows
            return a, rounded(b, -1)
        return rounded(a, -1), rounded(b, -2)

    def _stays(self, weight: Tensor) -> bool:
        return _memory(weight) in self._float


def router_weights(model: PreTrainedModel, tokens: Tensor) -> list[Parameter]:
    """Weights of the layers whose results choose experts: those nearest before a ``topk``."""
    with torch.enable_grad(), _chosen_of() as chosen:
        model(input_ids=tokens[:1, :4], use_cache=False)
    found: dict[int, Parameter] = {}
    for scores in chosen:
        for weight in _weights_before(scores.grad_fn):
            found[id(weight)] = weight
    return list(found.values())


@contextmanager
def _chosen_of() -> Iterator[list[Tensor]]:
    """The inputs of ``topk`` while it is open."""
    seen: list[Tensor] = []

    class Watch(TorchFunctionMode):
        def __torch_function__(
            self, func: Any, types: Any, args: Any = (), kwargs: Any = None
        ) -> Any:
            if getattr(func, "__name__", "") == "topk":
                seen.append(args[0])
            return func(*args, **(kwargs or {}))

    with Watch():
        yield seen


def _weights_before(node: Any) -> Iterator[Parameter]:
    """Weights of the products nearest before a node of the graph of gradients."""
    waiting, done = [node], set()
    while waiting:
        node = waiting.pop()
        if node is None or node in done:
            continue
        done.add(node)
        following = [one for one, _ in node.next_functions]
        if node.name().startswith(_LINEAR_GRADIENTS):
            yield from (p for one in following if (p := _parameter(one)) is not None and p.ndim > 1)
        else:
            waiting += following


def _parameter(node: Any) -> Parameter | None:
    """The parameter that a transposed or converted operand is."""
    while node is not None and not hasattr(node, "variable"):
        if node.name().startswith(_LINEAR_GRADIENTS) or len(node.next_functions) != 1:
            return None
        node = node.next_functions[0][0]
    return None if node is None else node.variable


def _memory(x: Tensor) -> int:
    return x.untyped_storage().data_ptr()
