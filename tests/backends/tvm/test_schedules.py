"""Schedules: validation, files, lookup in a program, and the choice among candidates."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest

from optc.backend import BuildOptions
from optc.backends.tvm.isa import Isa, isa_of
from optc.backends.tvm.program import Call, Function, Program, Tensor, kernel_names
from optc.backends.tvm.tuning import tuned
from optc.backends.tvm.tuning.schedule import Schedule, Workload, default_schedule, parse_schedule
from optc.backends.tvm.tuning.schedule_files import (
    packaged_schedules,
    parse_schedules,
    read_schedules,
    write_schedules,
)
from optc.backends.tvm.tuning.tuned import known_schedules, with_schedules
from optc.backends.tvm.tuning.tuning import MARGIN, ROUNDS, ROWS, TOLERANCE, choose
from optc.errors import InputError, UnavailableError
from optc.target import known_targets

ISA = isa_of(known_targets()["x86-64-v4-vnni"])
NARROW = isa_of(known_targets()["x86-64-v3"])
SHAPE = Workload("int_matmul", ISA.name, 128, 64, 8, 0, False)
OTHER = replace(SHAPE, n=192, bits=4, group_size=32, asymmetric=True)
TALL = Schedule(6, 8, 6)
NAMELESS = {**asdict(SHAPE), "kernel": ""}


def matmul(shape: Workload, *, bias: bool = False) -> Call:
    keys = ("n", "k", "bits", "group_size", "asymmetric")
    config = {**{key: getattr(shape, key) for key in keys}, "bias": bias}
    return Call("int_matmul", config, (), (Tensor("y", "float32", ("T", shape.n)),))


def program(*calls: Call) -> Program:
    return Program((Function("step", (), calls, "y"),), {}, "x86-64-v4-vnni", ISA.features)


def test_defaults_are_those_of_the_kernels_before_there_were_schedules() -> None:
    assert default_schedule(2, 0, ISA) == Schedule(8, 6, 8)
    assert default_schedule(9, 0, ISA) == Schedule(8, 8, 8, halves=True)
    assert default_schedule(2, 32, ISA) == Schedule(4, 8, 4)
    assert default_schedule(3, 32, NARROW) == Schedule(4, 4, 4, halves=True)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"few": 0}, "few is 0"),
        ({"few": 13}, "few is 13"),
        ({"many": -1}, "many is -1"),
        ({"many": True}, "many is True"),
        ({"wide": "6"}, "wide is '6'"),
        ({"chunk_rows": 0}, "chunk_rows is 0"),
        ({"fetch": 3}, "fetch is 3"),
        ({"many": 0, "halves": True}, "halves is true only together with many"),
        ({"halves": 1}, "halves is true only"),
        ({"depth": 1}, "unknown field 'depth'"),
    ],
)
def test_values_out_of_range_are_refused(change: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        parse_schedule({**asdict(TALL), **change})


def test_a_schedule_needs_every_field() -> None:
    with pytest.raises(InputError, match="missing field 'fetch'"):
        parse_schedule({k: v for k, v in asdict(TALL).items() if k != "fetch"})


def test_files_have_the_same_bytes_for_the_same_schedules(tmp_path: Path) -> None:
    known = {SHAPE: TALL, OTHER: Schedule(4)}
    write_schedules(tmp_path / "new" / "a.json", known)
    write_schedules(tmp_path / "b.json", dict(reversed(known.items())))
    assert (tmp_path / "new" / "a.json").read_bytes() == (tmp_path / "b.json").read_bytes()
    assert read_schedules(tmp_path / "b.json") == known


def entry(**change: Any) -> dict[str, Any]:
    return {"workload": asdict(SHAPE), "schedule": asdict(TALL), **change}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "f.json: is not JSON"),
        ("[]", "f.json: has no list 'schedules'"),
        (json.dumps({"format": 2, "schedules": []}), "f.json: has format 2, not 1"),
        (json.dumps({"format": 1, "schedules": [entry(x=1)]}), r"schedules\[0\]: is not an object"),
        (
            json.dumps({"format": 1, "schedules": [entry(workload={"n": 1})]}),
            r"schedules\[0\]: its workload is not \{kernel: str",
        ),
        (
            json.dumps({"format": 1, "schedules": [entry(workload=asdict(SHAPE) | {"n": True})]}),
            r"schedules\[0\]: its workload is not",
        ),
        (
            json.dumps(
                {"format": 1, "schedules": [entry(workload=asdict(SHAPE) | {"kernel": ""})]}
            ),
            "no schedules for kernel ''",
        ),
        (
            json.dumps({"format": 1, "schedules": [entry(), entry()]}),
            r"schedules\[1\]: repeats the workload",
        ),
        (
            json.dumps({"format": 1, "schedules": [entry(schedule=asdict(TALL) | {"few": 0})]}),
            r"f.json: schedules\[0\]: few is 0 \(use a whole number from 1 to 12\)",
        ),
    ],
)
def test_a_malformed_file_is_refused_with_its_place(text: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        parse_schedules(text, "f.json")


def test_a_file_that_cannot_be_read_or_written_is_named(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"none\.json: cannot be read"):
        read_schedules(tmp_path / "none.json")
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match="cannot be written"):
        write_schedules(tmp_path / "file" / "x.json", {})


def test_the_package_has_schedules_of_known_instruction_sets() -> None:
    assert {workload.isa for workload in packaged_schedules()} <= {ISA.name, NARROW.name}


def test_known_shapes_get_their_schedule_and_others_stay_as_they_are() -> None:
    before = program(matmul(SHAPE), matmul(SHAPE, bias=True), matmul(OTHER), matmul(SHAPE))
    after, used = with_schedules(before, {SHAPE: TALL}, ISA)
    assert used == {SHAPE: TALL}
    calls = after.functions[0].calls
    assert [call.config.get("schedule") for call in calls] == [
        asdict(TALL),
        asdict(TALL),
        None,
        asdict(TALL),
    ]
    assert calls[2] == before.functions[0].calls[2]
    assert calls[0].key == calls[3].key
    assert len(kernel_names(after)) == 3
    assert Program.from_json(after.to_json()) == after


def test_without_an_entry_for_the_instruction_set_nothing_changes() -> None:
    before = program(matmul(SHAPE), matmul(OTHER))
    after, used = with_schedules(before, {SHAPE: TALL}, NARROW)
    assert (after, used) == (before, {})


class Measured:
    """Stands for the measuring process; knows one workload's best schedule."""

    def __init__(self) -> None:
        self.asked: list[list[Workload]] = []

    def __call__(self, workloads: Sequence[Workload], isa: Isa) -> list[dict[str, Any]]:
        self.asked.append(list(workloads))
        return [{"workload": asdict(w), "schedule": asdict(TALL), "gain": 0.1} for w in workloads]


def on_this_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tuned, "host_features", lambda: frozenset(ISA.features))


def test_tuning_measures_what_the_file_lacks_and_a_build_from_the_file_is_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    on_this_machine(monkeypatch)
    file = tmp_path / "schedules.json"
    options = BuildOptions(max_context=64, tune=True, schedules=file)
    measured = Measured()
    model = program(matmul(SHAPE), matmul(OTHER), matmul(SHAPE))
    first, report = known_schedules(model, ISA, options, measured)
    assert measured.asked == [[OTHER, SHAPE]]  # the largest first
    assert (report["file"], report["unmeasured"]) == (str(file), 0)
    again, report = known_schedules(model, ISA, options, measured)
    assert len(measured.asked) == 1
    assert report["measured"] == []
    from_file, report = known_schedules(model, ISA, replace(options, tune=False))
    assert report == {}
    programs = [with_schedules(model, known, ISA)[0] for known in (first, again, from_file)]
    assert programs[0] == programs[1] == programs[2] != model


def test_tuning_without_a_file_extends_the_users_cache(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    on_this_machine(monkeypatch)
    monkeypatch.setenv("OPTC_CACHE", str(tmp_path))
    model, options = program(matmul(SHAPE)), BuildOptions(max_context=64, tune=True)
    known_schedules(model, ISA, options, Measured())
    assert read_schedules(tmp_path / "schedules.json") == {SHAPE: TALL}
    # a build that is not tuned must not depend on what was measured here before
    known, _ = known_schedules(model, ISA, BuildOptions(max_context=64))
    assert known == packaged_schedules()


def test_a_target_that_does_not_run_here_cannot_be_tuned(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tuned, "host_features", lambda: frozenset(NARROW.features))
    options = BuildOptions(max_context=64, tune=True)
    with pytest.raises(InputError, match=r"--tune: .* lacks .*avx512_vnni"):
        known_schedules(program(matmul(SHAPE)), ISA, options, Measured())


def test_a_measuring_process_that_dies_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    on_this_machine(monkeypatch)
    crashing = replace(tuned.MEASURING, module="tests.support.children.crashing_child")
    monkeypatch.setattr(tuned, "MEASURING", crashing)
    file = tmp_path / "schedules.json"
    options = BuildOptions(max_context=64, tune=True, schedules=file)
    with pytest.raises(UnavailableError, match="measures schedules was killed by signal 6"):
        known_schedules(program(matmul(SHAPE)), ISA, options)
    assert not file.exists()


class FakeTimer:
    """Every schedule takes a second, times what the test says."""

    def __init__(self, factors: dict[tuple[str, int], float], slow_at: int = 0) -> None:
        self.factors, self.slow_at = factors, slow_at
        self.calls: list[tuple[Schedule, int]] = []

    def __call__(self, schedule: Schedule, rows: int) -> float:
        self.calls.append((schedule, rows))
        seconds = 1.0
        for (name, value), factor in self.factors.items():
            if getattr(schedule, name) == value:
                seconds *= 3.0 if rows == self.slow_at else factor
        return seconds


def never() -> bool:
    return False


def test_the_fastest_value_of_every_parameter_is_chosen() -> None:
    timer = FakeTimer({("many", 8): 0.8, ("many", 12): 0.9, ("fetch", 4): 0.5, ("halves", 1): 0.99})
    choice = choose(SHAPE, ISA, timer, never)
    assert choice.schedule == Schedule(8, 8, 8, fetch=4)
    assert choice.gain == pytest.approx(0.6)
    assert choose(SHAPE, ISA, FakeTimer(timer.factors), never) == choice


def test_noise_and_a_loss_at_one_row_count_leave_the_default() -> None:
    default = default_schedule(2, 0, ISA)
    for timer in (
        FakeTimer({("many", 8): 1 - MARGIN / 2}),
        FakeTimer({("many", 8): 0.5}, slow_at=1),
        FakeTimer({("many", 8): 1 + TOLERANCE * 2}),
    ):
        choice = choose(SHAPE, ISA, timer, never)
        assert (choice.schedule, choice.gain) == (default, 0)


def test_candidates_take_turns() -> None:
    timer = FakeTimer({})
    choose(SHAPE, ISA, timer, never)
    first = [schedule.many for schedule, rows in timer.calls if rows == 1][: 3 * ROUNDS]
    assert first[:6] == [6, 8, 12, 8, 12, 6]
    assert all(first.count(many) == ROUNDS for many in (6, 8, 12))


def test_when_time_is_over_what_was_not_compared_stays() -> None:
    heights = 3 * ROUNDS * len(ROWS)
    timer = FakeTimer({("many", 8): 0.8, ("fetch", 8): 0.5})
    assert choose(SHAPE, ISA, timer, lambda: True).schedule == Schedule(8, 8, 8)
    assert len(timer.calls) == heights


def test_schedules_are_timed_on_all_threads() -> None:
    """On the threads of an engine's pool, in a process of its own as with ``--tune``."""
    script = (
        "import threading\n"
        "from optc.backends.tvm.tuning.kernel_timer import tune\n"
        "from optc.backends.tvm.tuning.schedule import Workload\n"
        "from tests.backends.tvm.matmul_cases import isa_that_runs\n"
        "isa = isa_that_runs('x86-64-v3')\n"
        "[entry] = tune([Workload('int_matmul', isa.name, 256, 256, 8, 0, False)], isa, 3, 0.5)\n"
        "names = [thread.name for thread in threading.enumerate()]\n"
        "print(entry['workload']['n'], names.count('optc-worker'))\n"
    )
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)}
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True, env=environment
    )
    assert done.stdout.split() == ["256", "2"]  # and the thread that calls
