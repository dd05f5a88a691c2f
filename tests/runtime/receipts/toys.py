"""An engine that answers as the toy does up to a position, and otherwise behind it."""

from __future__ import annotations

import numpy as np

from optc.runtime.executable.executable import Float32, StepBatch, StepInterface
from tests.runtime.support.toy import ToyExecutable


class PartingExecutable(ToyExecutable):
    """Likes other tokens from a position on."""

    def __init__(self, spec: StepInterface, position: int) -> None:
        super().__init__(spec)
        self.position = position

    def step(self, batch: StepBatch) -> Float32:
        logits = super().step(batch)
        late = batch.positions[batch.logit_rows] >= self.position
        return np.where(late[:, None], np.roll(logits, 1, axis=1), logits).astype(np.float32)
