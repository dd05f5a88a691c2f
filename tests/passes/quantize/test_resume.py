"""A calibration that is killed after any part goes on there, and gives the same to the bit."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx_ir as ir
import pytest

from optc.ir.pipeline.base import PassContext, PassReport
from optc.passes.calibrating.reads_text import ReadsText
from optc.passes.quantize.activations import allocate_activations
from optc.passes.quantize.activations.allocate_activations import AllocateActivations
from optc.passes.quantize.budget import sensitivity
from optc.passes.quantize.budget.allocate_bits import AllocateBits
from optc.passes.quantize.calibrate import Calibrate
from optc.passes.quantize.propagate import checkpoints, stages
from optc.passes.quantize.propagate.propagate_errors import PropagateErrors
from optc.passes.quantize.quantize_weights import QuantizeWeights
from optc.proof.reference.calibration import calibration_of
from optc.proof.reference.calibration_cache import CalibrationCache
from tests.support.small_decoder import folder, model

__all__ = ["folder", "model"]

GPTQ = QuantizeWeights(
    bits=4, group_size=32, symmetric=False, group_scales="int", head_bits=4, method="gptq"
)
PASSES: dict[str, ReadsText] = {
    "calibrate": Calibrate(hessians=True),
    "propagate": PropagateErrors(products="float32"),
    "bits": AllocateBits(budget="4.6bpw", formats=("2g32", "4g32", "8")),
    "activations": AllocateActivations(budget=1.4),
}


class KilledError(BaseException):
    """The process is gone."""


@pytest.fixture(autouse=True)
def small_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    """So that a small model has several parts of each kind."""
    monkeypatch.setattr(sensitivity, "_TOGETHER", 5)
    monkeypatch.setattr(allocate_activations, "_TOGETHER", 4)
    monkeypatch.setattr(checkpoints, "EVERY_S", 0.0)
    monkeypatch.setattr(stages, "TOKENS_PER_INPUT", 1)


@pytest.fixture
def saves(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """What is saved is counted; after as many as the first number the process is killed."""
    counted = [-1, 0]
    save = CalibrationCache.save

    def killed(self: CalibrationCache, *given: Any) -> None:
        save(self, *given)
        counted[1] += 1
        if counted[1] == counted[0]:
            raise KilledError

    monkeypatch.setattr(CalibrationCache, "save", killed)
    return counted


Run = Callable[[str], tuple[PassReport, str]]


@pytest.fixture(params=PASSES)
def run(request: pytest.FixtureRequest, model: ir.Model, folder: Path) -> Run:
    """Runs a pass with a cache: its report, and a digest of the statistics."""
    sizes = {"windows": 6, "window_tokens": 48}
    text = {"text": str(folder / "text.txt"), "folder": str(folder)}
    one = replace(PASSES[request.param], **text, **sizes)

    def call(cache: str) -> tuple[PassReport, str]:
        dense = model.clone()
        report = replace(one, cache=cache and str(folder / cache)).run(
            dense, PassContext(later=(GPTQ,))
        )
        return report, calibration_of(dense).digest()

    return call


def told(report: PassReport) -> list[str]:
    """What the report says of earlier runs; it is taken out."""
    keys = ("from_cache", "resumed_parts", "resumed_after_blocks")
    return [key for key in keys if report.facts.pop(key, None)]


@pytest.mark.parametrize("most", [4, pytest.param(99, marks=pytest.mark.long)])
def test_killed_after_a_save_it_goes_on_there(
    run: Run, saves: list[int], folder: Path, most: int
) -> None:
    """After each, or after the first, the last that is not the whole, and some between them."""
    plain, digest = run("")
    assert saves[1] == 0
    run("whole")
    every = saves[1]
    assert every >= 1
    # after the last one the calibration is complete
    for count in sorted({*np.linspace(1, every - 1, min(most, every - 1), dtype=int).tolist()}):
        cache = f"killed-{count}"
        saves[:] = count, 0
        with pytest.raises(KilledError):
            run(cache)
        saves[:] = -1, 0
        report, found = run(cache)
        # between a block and its streams, the block is computed and kept again
        assert saves[1] <= every - count + 1, "what was kept was computed again"
        assert told(report) or saves[1] == every
        assert (report, found) == (plain, digest)
        left = [place.name for place in (folder / cache).iterdir()]
        assert len(left) == 1, "parts are gone once the whole is kept"
        assert "from_cache" in told(run(cache)[0])


def test_a_damaged_part_is_computed_again(run: Run, saves: list[int], folder: Path) -> None:
    plain, digest = run("")
    run("whole")
    if saves[1] < 2:
        pytest.skip("the pass has no parts: what it keeps is the whole")
    saves[:] = 1, 0
    with pytest.raises(KilledError):
        run("damaged")
    saves[:] = -1, 0
    (entry,) = (folder / "damaged").iterdir()
    (entry / "entry.json").write_text("{")
    report, found = run("damaged")
    told(report)
    report.warnings = [text for text in report.warnings if "was damaged" not in text]
    assert (report, found) == (plain, digest)


def test_parts_of_other_options_are_not_taken(
    model: ir.Model, folder: Path, saves: list[int]
) -> None:
    cache = str(folder / "cache")
    text = {"text": str(folder / "text.txt"), "folder": str(folder), "cache": cache}
    one = replace(PASSES["bits"], windows=6, window_tokens=48, **text)
    one.run(model.clone(), PassContext(later=(GPTQ,)))
    for other, later in (
        (replace(one, budget="4.7bpw"), GPTQ),
        (replace(one, windows=7), GPTQ),
        (one, replace(GPTQ, method="round")),
    ):
        report = other.run(model.clone(), PassContext(later=(later,)))
        assert told(report) == []
    first = np.array([row["kl"] for row in report.facts["tensors"]])
    assert (first >= 0).all()
