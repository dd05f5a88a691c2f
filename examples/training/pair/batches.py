"""Windows of the token streams, to train on and to evaluate."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn

Ids = npt.NDArray[np.uint16]


class Windows:
    """Non-overlapping windows of the token stream, shuffled anew each epoch (the
    window grid is shifted by a random offset each time), as a function of the step."""

    def __init__(self, ids: Ids, length: int, batch: int, seed: int) -> None:
        self.ids, self.length, self.batch, self.seed = ids, length, batch, seed
        self.per_epoch = (len(ids) - 2 * length - 1) // length
        self.epoch = -1

    def __call__(self, step: int) -> tuple[Tensor, Tensor]:
        """Inputs and targets [batch, length] of a step."""
        rows = []
        for n in range(step * self.batch, (step + 1) * self.batch):
            epoch, index = divmod(n, self.per_epoch)
            if epoch != self.epoch:
                rng = np.random.default_rng([self.seed, epoch])
                self.shift = int(rng.integers(self.length))
                self.order = rng.permutation(self.per_epoch)
                self.epoch = epoch
            at = self.shift + int(self.order[index]) * self.length
            rows.append(self.ids[at : at + self.length + 1])
        return _shifted(rows)


@torch.no_grad()
def eval_loss(
    model: nn.Module, ids: Ids, length: int = 512, windows: int = 40, bf16: bool = False
) -> float:
    """Mean nats per token over evenly spaced full windows of the held-out stream."""
    starts = np.linspace(0, len(ids) - length - 2, windows).astype(int)
    total = 0.0
    for at in range(0, windows, 8):
        rows = [ids[s : s + length + 1] for s in starts[at : at + 8]]
        inputs, targets = _shifted(rows)
        with torch.autocast("cpu", torch.bfloat16, enabled=bf16):
            logits = model(inputs)
        loss = F.cross_entropy(logits.float().flatten(0, 1), targets.flatten())
        total += loss.item() * len(rows)
    return total / windows


def _shifted(rows: list[Ids]) -> tuple[Tensor, Tensor]:
    block = torch.from_numpy(np.stack(rows).astype(np.int64))
    return block[:, :-1], block[:, 1:]
