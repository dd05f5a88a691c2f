"""The loss in slices: the same values and gradients as at once."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F  # noqa: N812 - the field's name for it

from optc.compiling.training import losses
from optc.compiling.training.executor import DenseExecutor
from optc.compiling.training.losses import Runner, backward, divergence_sum
from tests.support.models import Dense, dense_model

TEACHER, STUDENT = Dense(tied=True, logit_softcap=4.0), Dense(tied=True, logit_softcap=4.0, seed=1)
TOKENS = torch.arange(24).reshape(2, 12)


def runner(shape: Dense, *, trained: bool) -> tuple[Runner, DenseExecutor]:
    executor = DenseExecutor(dense_model(shape))
    for parameter in executor.parameters():
        parameter.requires_grad_(trained)
    return Runner(executor, executor.effective()), executor


def whole_loss(student: Runner, teacher: Runner, hidden_weight: float) -> torch.Tensor:
    ours, theirs = student.hidden(TOKENS), teacher.hidden(TOKENS)
    logits = [
        one.executor.logits(h, one.tensors) for one, h in ((student, ours), (teacher, theirs))
    ]
    log_p, log_q = (F.log_softmax(one, -1) for one in logits)
    kl = (log_q.exp() * (log_q - log_p)).sum(-1).mean()
    return kl + hidden_weight * (ours - theirs).square().mean() / theirs.square().mean()


@pytest.mark.parametrize("hidden_weight", [0.0, 0.7])
def test_slices_give_the_gradients_of_the_whole(
    monkeypatch: pytest.MonkeyPatch, hidden_weight: float
) -> None:
    monkeypatch.setattr(losses, "SLICE_LOGITS", 5 * TEACHER.vocab)  # five rows
    teacher, _ = runner(TEACHER, trained=False)
    (first, one), (second, other) = (runner(STUDENT, trained=True) for _ in range(2))
    kl = backward(first, teacher, TOKENS, TEACHER.vocab, hidden_weight, share=0.5)
    (0.5 * whole_loss(second, teacher, hidden_weight)).backward()
    assert kl == pytest.approx(whole_loss(second, teacher, 0.0).item(), rel=1e-5)
    for left, right in zip(one.parameters(), other.parameters(), strict=True):
        torch.testing.assert_close(left.grad, right.grad, rtol=1e-4, atol=1e-6)
    theirs = teacher.hidden(TOKENS).flatten(0, 1)
    total = divergence_sum(first, teacher, TOKENS, theirs, TEACHER.vocab)
    assert total / TOKENS.numel() == pytest.approx(kl, rel=1e-5)


def test_a_model_diverges_from_itself_by_nothing() -> None:
    teacher, _ = runner(TEACHER, trained=False)
    theirs = teacher.hidden(TOKENS).flatten(0, 1)
    assert abs(divergence_sum(teacher, teacher, TOKENS, theirs, TEACHER.vocab)) < 1e-4
