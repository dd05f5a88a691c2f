"""Layers around experts are rounded for the inputs they get; experts and routers stay apart."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from optc.ir.pipeline.base import PassContext
from optc.passes.quantize.propagate.propagate_errors import PropagateErrors
from optc.passes.quantize.quantize_weights import QuantizeWeights
from tests.support.experts.models import Experts, expert_model
from tests.support.letters import letters_folder
from tests.support.models import Dense


def test_experts_and_routers_are_left_by_propagate_errors(tmp_path: Path) -> None:
    folder = letters_folder(tmp_path, 400)
    model = expert_model(
        Dense(hidden=64, inner=32, vocab=97, windows=(0,)), Experts(corrected=True)
    )
    quantize = QuantizeWeights(bits=8, method="gptq")
    propagate = PropagateErrors(
        text=str(folder / "text.txt"), folder=str(folder), windows=2, window_tokens=16
    )
    report = propagate.run(model, PassContext(later=(quantize,)))
    assert report.details["linear layer"] == 4  # q, k, v and o; not the router
    assert report.details["head"] == 1
    assert np.isfinite(report.facts["block_sqnr_db"]).all()
    found = quantize.run(model)
    assert found.details["int8 per channel, experts rounded plainly"] == 2
    assert found.details["int8 per channel, gptq"] == 5
    assert sum("a router reads its result" in one for one in found.skipped) == 1
