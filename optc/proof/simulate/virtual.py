"""An engine in virtual time: steps take as long as `StepTimes` says, and compute nothing.

It gives logits of two tokens. Drafts always name token 1, and each row's largest logit is that of
token 1 with the stated acceptance, so that the runtime's own verifier accepts drafts at that rate.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
from msgspec.structs import replace

from optc.proof.simulate.step_times import Rows, StepTimes
from optc.runtime.executable.adapter_spec import ModuleWeights
from optc.runtime.executable.executable import Float32, Int32, StepBatch, StepInterface
from optc.runtime.requests.request import Request
from optc.runtime.speculative.proposer import DraftRequest, Drafts

_REFUSED, _DRAFT = 0, 1


class VirtualClock:
    """Seconds that pass only when somebody says so."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        """The time."""
        return self.now


class VirtualEngine:
    """An `optc.runtime.executable.executable.Executable` whose steps only move the clock.

    Args:
        spec: Of the engine that is simulated.
        times: How long its steps take.
        clock: What a step moves.
        acceptance: Probability that a draft is accepted if those before it are.
        seed: Of what is accepted, and of which steps are held up.
    """

    def __init__(
        self,
        spec: StepInterface,
        times: StepTimes,
        clock: VirtualClock,
        *,
        acceptance: float = 0.0,
        seed: int = 0,
    ) -> None:
        # Two tokens are sampled in NumPy; what a real step's sampling takes is in the step times.
        self.spec = replace(spec, vocab_size=2, adapters=None, samples=False)
        self._times = times
        self._clock = clock
        self._acceptance = acceptance
        self._rng = np.random.default_rng(seed)
        self._delays = np.random.default_rng([seed, 1])  # acceptance does not depend on them

    def allocate_kv(self, blocks_per_group: tuple[int, ...], block_size: int) -> None:
        """Nothing is stored."""

    def step(self, batch: StepBatch) -> Float32:
        """Let the step's time pass; logits [R, 2]."""
        new = np.diff(batch.query_starts).tolist()
        sequences = list(map(Rows, new, batch.kv_lengths[0].tolist()))
        rows = len(batch.logit_rows)
        expected_s = self._times.step_s(sequences, rows)
        self._clock.now += self._times.drawn_s(expected_s, self._delays.random())
        logits = np.zeros((rows, 2), np.float32)
        accepted = self._rng.random(rows) < self._acceptance
        logits[np.arange(rows), np.where(accepted, _DRAFT, _REFUSED)] = 1
        return logits

    def copy_kv(self, group: int, src_slots: Int32, dst_slots: Int32) -> None:
        """Nothing is stored."""

    def read_blocks(self, group: int, blocks: Int32) -> npt.NDArray[np.uint8]:
        """Blocks hold nothing."""
        return np.zeros((len(blocks), 0), np.uint8)

    def write_blocks(self, group: int, blocks: Int32, data: npt.NDArray[np.uint8]) -> None:
        """Nothing is stored."""

    def write_adapter(self, slot: int, modules: Sequence[ModuleWeights | None]) -> None:
        """Nothing is stored."""

    def close(self) -> None:
        """Nothing is held."""


class VirtualProposer:
    """Drafts as many tokens as it may, all of them token 1."""

    def propose(self, wanted: Sequence[DraftRequest]) -> list[Drafts]:
        """Drafts for each request."""
        return [Drafts([_DRAFT] * limit) for _, limit in wanted]

    def forget(self, request: Request) -> None:
        """Nothing is kept."""
