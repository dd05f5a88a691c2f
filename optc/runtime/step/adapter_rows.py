"""The adapter of each row of a step."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from optc.runtime.executable.executable import StepBatch
from optc.runtime.requests.request import Request
from optc.runtime.scheduling.chunks import Chunk


def with_adapters(batch: StepBatch, chunks: Sequence[Chunk[Request]]) -> StepBatch:
    """The batch over ``chunks`` with the slot of each row's adapter, if any request has one."""
    adapters = [chunk.request.adapter for chunk in chunks]
    if not any(adapters):
        return batch
    slots = np.array([-1 if adapter is None else adapter.slot for adapter in adapters], np.int32)
    return replace(batch, adapters=np.repeat(slots, [chunk.rows for chunk in chunks]))
