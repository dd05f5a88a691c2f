"""A forked compile ends as one of a process of its own does, and its time is counted."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from optc.backends.tvm.compiling.build import COMPILER
from optc.backends.tvm.program import Program
from optc.errors import UnavailableError, UnsupportedError
from optc.system.processes.child_job import ChildJob
from tests.support.cost import forked_compiler
from tests.support.cost.cpu_times import cpu_seconds

PROGRAM = Program(functions=(), bounds={}, target="x86-64-v3")
STRANGE = "tests.support.children.strange_compiler"


def compiled(what: str, job: ChildJob = COMPILER) -> Any:
    request = {"program": PROGRAM.to_json(), "engine": f"/nowhere/{what}", "compiler": STRANGE}
    return job.run(json.dumps(request))


def test_it_is_another_process_with_this_one_s_folder_and_variables(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    pids = set()
    for value in ("one", "two"):
        monkeypatch.setenv("OPTC_STRANGE", value)
        before = cpu_seconds()
        report = compiled("say")
        assert cpu_seconds() - before >= 0.2
        assert (report["folder"], report["variable"]) == (str(tmp_path), value)
        assert report["imported"], "before the fork"
        pids.add(report["pid"])
    assert len(pids | {os.getpid()}) == 3
    assert capfd.readouterr() == ("", "")


def test_refusals_crashes_and_hangs_are_errors() -> None:
    with pytest.raises(UnsupportedError, match="x86-64-v3: no such node"):
        compiled("refuse")
    with pytest.raises(UnavailableError, match="was killed by signal 6; its last lines: noise"):
        compiled("crash")
    with pytest.raises(UnavailableError, match="the compiler did not finish within 1 s"):
        compiled("hang", replace(COMPILER, timeout_s=1.0))


def test_other_work_has_processes_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(forked_compiler, "Forked", None)
    job = replace(COMPILER, module="tests.support.children.crashing_child")
    with pytest.raises(UnavailableError, match="before the crash"):
        job.run("")
