"""What a request takes before it runs: given back if it never does."""

from __future__ import annotations

import pytest

from optc.runtime.adapters.table import AdapterTable
from optc.runtime.executable.adapter_spec import AdapterSpec
from optc.runtime.params import SamplingParams
from optc.runtime.requests.generation_request import GenerationRequest
from optc.runtime.submitting.input_processor import InputProcessor

WAYS = [SamplingParams(), SamplingParams(n=3), SamplingParams(beam_width=3)]


@pytest.mark.parametrize("params", WAYS, ids=["one", "n", "beams"])
def test_a_discarded_request_gives_its_adapter_back(params: SamplingParams) -> None:
    table = AdapterTable(AdapterSpec(max=1, rank=2, modules=()))
    table.publish(table.reserve("sql"))
    intake = InputProcessor(None, 48, 64, 8, (), table, lambda handle: None)
    intake.discard(intake.submission(GenerationRequest([1, 2], params, adapter="sql")))
    table.unload("sql")
    assert table.reserve("other").slot == 0, "the only slot is free again"
