"""A machine whose ceilings are known, and an engine whose kernels take known times."""

from __future__ import annotations

from collections.abc import Callable

from optc.proof.roofline.ceilings import Ceiling
from optc.proof.roofline.costs import KernelCost, StepCosts
from optc.proof.roofline.measurable import KernelTime, StepTimes
from optc.runtime.executable.executable import StepBatch

#: A matmul over 1000 bytes of weights, attention over 10 bytes a token, a norm.
COSTS = StepCosts(
    "int8",
    {
        "int_matmul_0": KernelCost(2, "int8", {"1": 1000.0}, {"T": 400.0}, "20x10"),
        "paged_attention_1": KernelCost(1, "fp32", {"kv0": 10.0}, {"pairs0": 8.0}),
        "rms_norm_2": KernelCost(2, "fp32", {}, {}),
    },
)


class FakeMeter:
    """1 MB/s of reads, 2 Mop/s of int8 and 1 Mop/s of fp32, unless given otherwise."""

    read_bytes = 4096

    def __init__(self, **best: float) -> None:
        self.best = {"read": 1e6, "int8": 2e6, "fp32": 1e6} | best
        self.samples = 0

    def measure(self) -> dict[str, float]:
        self.samples += 1
        return dict(self.best)

    def ceilings(self) -> dict[str, Ceiling]:
        return {name: Ceiling(best, best * 0.9) for name, best in self.best.items()}


class FakeProfiler:
    """Every step takes 10 ms: 4 in the matmul, 2 in attention, 1 in a kernel without costs."""

    def __init__(self) -> None:
        self.blocks: list[tuple[tuple[int, ...], int]] = []
        self.batches: list[StepBatch] = []
        self.closed = False

    def allocate_kv(self, blocks_per_group: tuple[int, ...], block_size: int) -> None:
        self.blocks.append((blocks_per_group, block_size))

    def time_step(self, batch: StepBatch, rounds: int, before: Callable[[], None]) -> StepTimes:
        self.batches.append(batch)
        kernels = (
            KernelTime("add", 3, 1e-3),
            KernelTime("paged_attention_1", 1, 2e-3),
            KernelTime("int_matmul_0", 2, 4e-3),
        )
        for _ in range(rounds):
            before()
        return StepTimes(10e-3, kernels, 1e-6, (10e-3,) * rounds)

    def close(self) -> None:
        self.closed = True
