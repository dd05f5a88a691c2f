"""The distance of the student from the teacher, in slices of rows: logits of a whole batch are
never held at once."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import torch
import torch.nn.functional as F  # noqa: N812 - the field's name for it
from torch import Tensor

from optc.compiling.training.executor import DenseExecutor
from optc.compiling.training.memory import SLICE_LOGITS


@dataclass(frozen=True)
class Runner:
    """A model with its tensors as they are used in a step."""

    executor: DenseExecutor
    tensors: Mapping[str, Tensor]

    def hidden(self, tokens: Tensor) -> Tensor:
        """The head's input [B, S, D]."""
        return self.executor.hidden(tokens, self.tensors)

    def log_probabilities(self, rows: Tensor) -> Tensor:
        """[R, V] of rows [R, D] of the head's input."""
        return F.log_softmax(self.executor.logits(rows, self.tensors), dim=-1)


def row_slices(rows: int, vocabulary: int) -> Iterator[slice]:
    """Slices of rows whose logits fit `SLICE_LOGITS`."""
    step = max(1, SLICE_LOGITS // vocabulary)
    for start in range(0, rows, step):
        yield slice(start, min(start + step, rows))


@torch.no_grad()
def divergence_sum(
    student: Runner, teacher: Runner, tokens: Tensor, theirs: Tensor, vocabulary: int
) -> float:
    """The sum of KL(teacher ‖ student) over all rows of windows [B, S], in nats.

    Args:
        student: The student.
        teacher: The teacher.
        tokens: Windows, int64.
        theirs: What `Runner.hidden` of the teacher gives of them, rows [B * S, D].
        vocabulary: V.
    """
    ours = student.hidden(tokens).flatten(0, 1)
    total = 0.0
    for part in row_slices(len(ours), vocabulary):
        total += _kl(student.log_probabilities(ours[part]), teacher, theirs[part]).item()
    return total


def backward(
    student: Runner,
    teacher: Runner,
    tokens: Tensor,
    vocabulary: int,
    hidden_weight: float = 0.0,
    share: float = 1.0,
) -> float:
    """Add the gradients of the mean loss over windows [B, S] to the student's.

    Args:
        student: Its tensors take gradients.
        teacher: What it learns from.
        tokens: Windows, int64.
        vocabulary: V.
        hidden_weight: What the relative squared error of the last hidden states counts.
        share: What the windows count in the step.

    Returns:
        The mean KL in nats.
    """
    with torch.no_grad():
        theirs = teacher.hidden(tokens).flatten(0, 1)
    ours = student.hidden(tokens).flatten(0, 1)
    rows = ours.detach().float().requires_grad_()
    total = 0.0
    for part in row_slices(len(rows), vocabulary):
        kl = _kl(student.log_probabilities(rows[part]), teacher, theirs[part]) / len(rows)
        (share * kl).backward()
        total += kl.item()
    if hidden_weight:
        reference = theirs.float()
        lost = (rows - reference).square().mean() / reference.square().mean()
        (share * hidden_weight * lost).backward()
    ours.backward(rows.grad.to(ours.dtype))
    return total


def _kl(ours: Tensor, teacher: Runner, hidden: Tensor) -> Tensor:
    with torch.no_grad():
        theirs = teacher.log_probabilities(hidden)
    return F.kl_div(ours, theirs, reduction="sum", log_target=True)
