from __future__ import annotations

import numpy as np

from optc.runtime.adapters.table import Adapter
from optc.runtime.executable.executable import StepBatch
from optc.runtime.requests.request import Request
from optc.runtime.scheduling.chunks import Chunk
from optc.runtime.step.adapter_rows import with_adapters
from tests.runtime.speculative.test_speculator import request

EMPTY = np.zeros(0, np.int32)
BATCH = StepBatch(np.arange(6, dtype=np.int32), *([EMPTY] * 6))


def chunks(*adapters: Adapter | None) -> list[Chunk[Request]]:
    """One row for the first request, two for the second, and so on."""
    made = []
    for number, adapter in enumerate(adapters):
        each = request(number)
        each.adapter = adapter
        made.append(Chunk(each, 0, number + 1))
    return made


def test_without_adapters_the_batch_stays_as_it_is() -> None:
    assert with_adapters(BATCH, chunks(None, None, None)) is BATCH


def test_each_row_has_the_slot_of_its_requests_adapter() -> None:
    made = with_adapters(BATCH, chunks(Adapter("a", 2, 1), None, Adapter("b", 0, 2)))
    assert made.adapters is not None
    assert made.adapters.tolist() == [2, -1, -1, 0, 0, 0]
    assert made.adapters.dtype == np.int32
    assert made.tokens is BATCH.tokens
