"""Kernels of any schedule have the bits of the default."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from optc.backends.tvm.kernels.matmul.matmul_int import IntMatmul
from optc.backends.tvm.kernels.matmul.schedule import Schedule
from tests.backends.tvm.matmul_cases import int_case, isa_that_runs, run

ISAS = ["x86-64-v3", "x86-64-v4-vnni"]
SCHEDULES = [
    Schedule(1),
    Schedule(3, 7, 5, halves=True),
    Schedule(12, 12, 0),
    Schedule(6, 8, 8),
]
CONFIGS = [IntMatmul(192, 256), IntMatmul(200, 100, 4, 32, asymmetric=True, bias=True)]


#: Every schedule with every configuration, each on another instruction set.
CASES = [
    pytest.param(schedule, config, ISAS[(i + j) % 2], id=f"few{schedule.few}-{config.name}")
    for i, schedule in enumerate(SCHEDULES)
    for j, config in enumerate(CONFIGS)
]


@pytest.mark.parametrize(("schedule", "config", "target"), CASES)
def test_a_schedule_changes_no_bit(schedule: Schedule, config: IntMatmul, target: str) -> None:
    isa = isa_that_runs(target)
    other = replace(config, schedule=schedule)
    for rows in (1, 8, 9, 37, 150):
        inputs = int_case(config, rows).inputs()
        np.testing.assert_array_equal(run(other, isa, inputs), run(config, isa, inputs))
