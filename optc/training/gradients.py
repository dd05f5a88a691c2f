"""Gradients of the loss by values inside a model, from one backward pass for each window."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping

import numpy as np
import onnx_ir as ir
import torch
import torch.nn.functional as F  # noqa: N812 - the field's name for it
from torch import Tensor

from optc.executable.executable import Float32, Int32
from optc.process_memory import give_back_freed
from optc.training.executor import DenseExecutor
from optc.training.losses import row_slices

#: Of each name, a window's values [S, n] and the gradients of its loss by them.
Window = Mapping[str, tuple[Float32, Float32]]


def run_backward(
    model: ir.Model,
    tokens: Int32,
    names: Collection[str],
    threads: int,
    on_window: Callable[[Window], None],
) -> None:
    """Run windows [W, S] forwards and backwards.

    The loss of a window is the sum over its tokens of minus the logarithm of the probability that
    the model gives the next token of the text.

    Args:
        model: Dense form; it is not changed. All its weights are in memory, in float32.
        tokens: Windows [W, S].
        names: Of values [B, S, n] of the graph that the loss depends on.
        threads: Threads of PyTorch, for the process from now on.
        on_window: Gets the values and gradients of each window.
    """
    torch.set_num_threads(threads)
    executor = DenseExecutor(model)
    tensors = {name: tensor.detach() for name, tensor in executor.effective().items()}
    for ids in tokens.astype(np.int64):
        window, watched = torch.from_numpy(ids), dict[str, Tensor]()
        hidden = executor.hidden(window[None], tensors, _watch(names, watched))[0, :-1]
        if absent := sorted({*names} - {*watched}):
            raise ValueError(f"{absent[0]}: the loss does not depend on it")
        _backward(executor, tensors, hidden, window[1:])
        on_window({name: (_rows(value), _rows(value.grad)) for name, value in watched.items()})
        watched.clear()
        give_back_freed()


def _watch(names: Collection[str], watched: dict[str, Tensor]) -> Callable[[str, Tensor], Tensor]:
    def seen(name: str, value: Tensor) -> Tensor:
        if name not in names:
            return value
        if value.requires_grad:
            value.retain_grad()
        else:  # the first: nothing before it needs gradients
            value = value.detach().requires_grad_()
        watched[name] = value
        return value

    return seen


def _backward(
    executor: DenseExecutor, tensors: Mapping[str, Tensor], hidden: Tensor, targets: Tensor
) -> None:
    """Gradients of the loss of one window, whose head's inputs are [S - 1, D], by all that its
    values are made of; logits are never held for all rows at once."""
    rows = hidden.detach().float().requires_grad_()
    vocabulary = executor.logits(rows[:1].detach(), tensors).shape[-1]
    for part in row_slices(len(rows), vocabulary):
        logits = executor.logits(rows[part], tensors)
        F.cross_entropy(logits, targets[part], reduction="sum").backward()
    hidden.backward(rows.grad)


def _rows(value: Tensor | None) -> Float32:
    if value is None:
        raise ValueError("a value that nothing reads has no gradient")
    found: Float32 = value.detach()[0].float().numpy()
    return found
