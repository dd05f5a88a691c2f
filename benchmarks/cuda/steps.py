"""Steps of a loaded engine: how long they take, and which part of the peaks they use."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any

from optc.backends.tvm_cuda.loaded.executable import CudaExecutable
from optc.backends.tvm_cuda.loaded.graphs import PATIENCE
from optc.proof.bench.batches import block_count, step_batch
from optc.proof.bench.profile import BLOCK_SIZE, Shape
from optc.proof.roofline.costs import StepCosts, step_work
from optc.runtime.executable.executable import StepBatch, StepInterface
from optc.runtime.executable.kv_layout import block_size_for

#: What `engine_timers` times: steps as CUDA graphs, and kernel by kernel.
ENGINES = frozenset({"optc", "optc without graphs"})


class EngineSteps:
    """Steps of one shape on an engine whose pools are allocated."""

    def __init__(self, engine: CudaExecutable, batch: StepBatch, *, graphs: bool) -> None:
        self._engine = engine
        self._batch = batch
        self._graphs = graphs

    def time(self) -> float:
        """Seconds of one step, inputs from and logits to host memory."""
        self._engine.graphs.enabled = self._graphs
        start = time.perf_counter()
        self._engine.step(self._batch)
        return time.perf_counter() - start


def engine_timers(engine: CudaExecutable, shape: Shape) -> dict[str, EngineSteps]:
    """Timers of `ENGINES` on one engine, which gets pools for them."""
    spec = engine.spec
    block = block_size_for(spec, shape.context, about=BLOCK_SIZE)
    blocks = block_count(shape.sequences, shape.context, block)
    engine.allocate_kv((blocks,) * len(spec.groups), block)
    batch = step_batch(spec, shape.sequences, shape.rows, shape.context, block)
    engine.graphs.enabled = True
    for _ in range(PATIENCE):  # so that what is timed is captured
        engine.step(batch)
    return {name: EngineSteps(engine, batch, graphs=name == "optc") for name in sorted(ENGINES)}


def fitting(spec: StepInterface, shapes: Sequence[Shape]) -> list[Shape]:
    """Those shapes that one step of the engine can have."""
    return [
        shape
        for shape in shapes
        if shape.sequences <= min(spec.max_sequences, spec.max_logit_rows)
        and shape.sequences * shape.rows <= spec.max_rows
        and shape.context <= spec.max_context
    ]


def utilization(
    shape: Shape, seconds: float, spec: StepInterface, costs: StepCosts, peaks: Mapping[str, float]
) -> dict[str, Any]:
    """MBU and MFU of a step: bytes that it must read and operations of it, by time and peaks."""
    count = shape.sequences
    work = step_work(spec, [shape.rows] * count, [shape.context] * count, count)
    return {
        "mbu": costs.bytes_of(work) / seconds / peaks["read"],
        "mfu": costs.ops_of(work) / seconds / peaks[costs.peak],
    }
