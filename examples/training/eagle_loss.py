"""The loss of a layer that drafts by hidden states: cross-entropy against its model."""

from __future__ import annotations

from typing import Any

import torch
from eagle_windows import Windows
from torch import Tensor

#: A part of an unrolled step counts this much less than the part before it.
DECAY = 0.8
#: Rows whose logits are computed at once: those of all would not fit into a cache.
ROWS = 128


class Distillation(torch.autograd.Function):
    """Mean cross-entropy of ``rows @ lm_head.T`` [N, V] against ``teacher`` [N, V]. Logits stay in
    a processor's cache: much of a step's time went into moving them."""

    @staticmethod
    def forward(ctx: Any, rows: Tensor, lm_head: Tensor, teacher: Tensor) -> Tensor:
        """The loss; its gradient is known, and kept."""
        gradient, total = torch.empty_like(rows), torch.zeros(())
        for block in torch.arange(len(rows)).split(ROWS):
            at = slice(int(block[0]), int(block[-1]) + 1)
            logits = (rows[at].to(lm_head.dtype) @ lm_head.T).float()
            scale = logits.logsumexp(-1, keepdim=True)
            total += scale.sum() - torch.linalg.vecdot(logits, teacher[at]).sum()
            wrong = logits.sub_(scale).exp_().sub_(teacher[at])
            gradient[at] = wrong.to(lm_head.dtype) @ lm_head
        ctx.save_for_backward(gradient)
        return total / len(rows)

    @staticmethod
    def backward(ctx: Any, above: Tensor) -> tuple[Tensor, None, None]:
        """Of ``rows``."""
        (gradient,) = ctx.saved_tensors
        return gradient * (above / len(gradient)), None, None


def loss_of(guesses: list[Tensor], windows: Windows, lm_head: Tensor) -> Tensor:
    """Cross-entropy of all parts against the model's distribution, of the rows that count; the
    first rows of the last part have too few rows before them."""
    counts = windows.counts()
    counts[:, : len(guesses) - 1] = False
    with torch.no_grad():
        teacher = (windows.hidden[counts].to(lm_head.dtype) @ lm_head.T).float().softmax(-1)
    total = torch.zeros(())
    for part, guess in enumerate(guesses):
        loss = Distillation.apply(guess[counts].float(), lm_head, teacher)
        total = total + DECAY**part * loss
    return total
