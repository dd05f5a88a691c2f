"""Kernels of any schedule: the bits of the default; and measuring real ones."""

from __future__ import annotations

import itertools
import json
import subprocess
import sys
from dataclasses import asdict, replace
from pathlib import Path

import numpy as np
import pytest

from optc.backends.tvm.kernels.matmul.matmul_int import IntMatmul
from optc.backends.tvm.tuning.kernel_timer import SAMPLE_WORK, KernelTimer, in_turns, tune
from optc.backends.tvm.tuning.schedule import Schedule, Workload
from tests.backends.tvm.matmul_cases import int_case, isa_that_runs, run

ISAS = ["x86-64-v3", "x86-64-v4-vnni"]
SCHEDULES = [
    Schedule(1, fetch=0, chunk_rows=1),
    Schedule(3, 7, 5, halves=True, fetch=2, chunk_rows=7),
    Schedule(12, 12, 0, fetch=8, chunk_rows=200),
    Schedule(6, 8, 8, chunk_rows=1),  # rows are not split into fewer than a tile is made for
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


@pytest.mark.parametrize("format", [(8, 0, False), (4, 32, True)])
def test_a_timer_gives_the_mean_of_as_many_calls_as_make_a_sample(
    format: tuple[int, int, bool],
) -> None:
    isa = isa_that_runs("x86-64-v3")
    pool = np.zeros(3 * 64 * 32, np.uint8)
    clock = itertools.count()
    workload = Workload("int_matmul", isa.name, 64, 32, *format)
    timer = KernelTimer(workload, isa, pool, lambda: float(next(clock)))
    for schedule in (Schedule(1), Schedule(2)):
        assert timer(schedule, 3) == 1 / (SAMPLE_WORK // (3 * 64 * 32))
    assert timer(Schedule(1), SAMPLE_WORK // 64) == 1


@pytest.mark.parametrize("sets", [1, 2, 3, 8])
@pytest.mark.parametrize("candidates", [2, 7, 8])
def test_every_candidate_meets_all_weights(sets: int, candidates: int) -> None:
    drawn = list(itertools.islice(in_turns(range(sets)), 40 * sets * candidates))
    for first in range(candidates):  # no phase is locked
        assert set(drawn[first::candidates]) == set(range(sets))
    for index, item in enumerate(drawn):  # and none meets weights that were used lately
        assert item not in drawn[max(0, index - (sets - 1) // 2) : index]


def test_shapes_for_which_there_is_no_time_are_left_out() -> None:
    isa = isa_that_runs("x86-64-v3")
    workload = Workload("int_matmul", isa.name, 64, 32, 8, 0, False)
    assert tune([workload, workload], isa, 2, seconds=0) == []


def test_the_measuring_process_answers_in_a_file(tmp_path: Path) -> None:
    isa = isa_that_runs("x86-64-v3")
    request, result = tmp_path / "request.json", tmp_path / "result.json"
    workload = Workload("int_matmul", isa.name, 64, 32, 8, 0, False)
    asked = {"features": list(isa.features), "workloads": [asdict(workload)]}
    request.write_text(json.dumps({**asked, "threads": 1, "seconds": 0}))
    module = "optc.backends.tvm.tuning.tuning_child"
    subprocess.run([sys.executable, "-m", module, str(request), str(result)], check=True)
    assert json.loads(result.read_text()) == {"answer": []}
