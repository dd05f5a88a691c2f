"""What passes warn of reaches the compile's warnings."""

from __future__ import annotations

from optc.driver.compiling.lowering import Lowered
from optc.pipeline.base import PassReport
from optc.pipeline.record import PassRecord
from tests.support.dense_models import dense_model


def test_warnings_are_those_of_passes_that_found_nothing_and_of_their_reports() -> None:
    runs = (
        PassRecord(0, "fuse-x", "fuse-x", 0.1, PassReport(), "pass fuse-x: nothing"),
        PassRecord(1, "calibrate", "calibrate", 0.1, PassReport(warnings=["short", "odd"])),
        PassRecord(2, "kv-cache", "kv-cache", 0.1, PassReport()),
    )
    lowered = Lowered(dense_model(1), dense_model(1), runs, "spec")
    assert lowered.warnings == (
        "pass fuse-x: nothing",
        "pass calibrate: short",
        "pass calibrate: odd",
    )
