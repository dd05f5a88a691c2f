"""The hunt: what an input does to its worker is counted, and the next input runs."""

from __future__ import annotations

import ctypes
import faulthandler
import json
import os
import signal
from collections.abc import Callable
from pathlib import Path
from random import Random

import pytest

from optc.errors import InputError
from tests.fuzz.findings import read_draw, save_findings
from tests.fuzz.form import Draw, Files, Format, WrongError, expect
from tests.fuzz.hunt import hunt
from tests.fuzz.outcome import ROOT, outcome_of, place_in

#: Far more than any input here takes, but for the one that never ends.
PATIENT_S = 120.0


def accept() -> None:
    pass


def refuse() -> None:
    raise InputError("no")


def refuse_unprintably() -> None:
    raise InputError("\ud800")


def fail() -> None:
    json.loads("{")


def crash() -> None:
    ctypes.string_at(0)


def leave() -> None:
    os._exit(3)


def take_memory() -> None:
    bytearray(1 << 40)


def loop() -> None:
    while True:
        pass


class Acts(Format[list[Callable[[], None]]]):
    """An input is a list of acts: that of each edit."""

    name = "acts"

    def __init__(self, *acts: Callable[[], None]) -> None:
        self.acts = acts

    def sample(self, random: Random) -> list[Callable[[], None]]:
        return []

    def edit(self, random: Random, value: list[Callable[[], None]]) -> list[Callable[[], None]]:
        return [*value, random.choice(self.acts)]

    def make(self, draw: Draw) -> list[Callable[[], None]]:
        return [self.acts[number] for number in draw.edits]

    def run(self, value: list[Callable[[], None]]) -> None:
        for act in value:
            act()

    def shown(self, value: list[Callable[[], None]]) -> Files:
        return {"acts.txt": " ".join(act.__name__ for act in value).encode()}


def draws(*numbers: int) -> list[Draw]:
    return [Draw(0, (number,)) for number in numbers]


def test_every_way_to_end_is_counted_and_the_hunt_goes_on() -> None:
    form = Acts(accept, refuse, fail, crash, leave, take_memory, refuse_unprintably)
    tally = hunt(form, draws(3, 0, 1, 2, 4, 5, 6, 0), limit_s=PATIENT_S)
    assert tally.to_json() == {
        "inputs": 8,
        "accepted": 2,
        "refused": {"InputError": 1},
        "crashes": {"SIGSEGV": 1, "exit 3": 1},
        "raw_exceptions": {"JSONDecodeError": 1, "MemoryError": 1, "UnicodeEncodeError": 1},
        "hangs": 0,
    }
    places = {where for kind, _, where in tally.findings if kind == "crash"}
    assert any("string_at" in place for place in places)


class OwnHandlers(Acts):
    """As a library that is loaded with the engine and handles signals itself."""

    def open(self, folder: Path) -> None:
        faulthandler.enable()
        signal.signal(signal.SIGSEGV, signal.SIG_DFL)


def test_a_crash_has_its_place_whatever_handles_signals() -> None:
    (finding,) = hunt(OwnHandlers(crash), draws(0), limit_s=PATIENT_S).findings.values()
    assert "string_at" in finding.outcome.where


def test_an_input_that_never_ends_is_stopped() -> None:
    tally = hunt(Acts(loop), draws(0), limit_s=0.3)
    (finding,) = tally.findings.values()
    assert (finding.outcome.kind, finding.outcome.where.split()[-1]) == ("hang", "loop")


def test_equal_findings_are_one_with_a_count() -> None:
    (finding,) = hunt(Acts(fail), draws(0, 0, 0), limit_s=PATIENT_S).findings.values()
    assert finding.count == 3


def test_a_fault_of_the_fuzzer_is_none_of_optc() -> None:
    with pytest.raises(RuntimeError, match=r"an input could not be made:[\s\S]*IndexError"):
        hunt(Acts(), draws(0), limit_s=PATIENT_S)


def test_a_finding_is_saved_with_as_few_edits_as_give_it(tmp_path: Path) -> None:
    form = Acts(accept, refuse, fail)
    tally = hunt(form, [Draw(7, (0, 0, 2, 1))], limit_s=PATIENT_S)
    (listed,) = save_findings(form, tally, tmp_path, seed=5, limit_s=PATIENT_S)
    assert (listed["kind"], listed["what"], listed["count"]) == ("raw", "JSONDecodeError", 1)
    folder = tmp_path / listed["saved"]
    assert (folder / "acts.txt").read_text() == "fail"
    assert read_draw(folder) == ("acts", Draw(7, (2,)))
    assert "Traceback" in json.loads((folder / "finding.json").read_text())["details"]


def test_a_finding_lies_in_the_products_innermost_frame() -> None:
    from optc.artifact.jsonio import read_json

    outcome = outcome_of(lambda: read_json(None))  # type: ignore[arg-type]
    assert (outcome.kind, outcome.what) == ("raw", "TypeError")
    assert outcome.where.startswith("optc/system/foreign/file.py:")
    dump = f'''Thread 0x1 (most recent call first):
  File "/x/y/z.py", line 1 in wait
Current thread 0x2 (most recent call first):
  File "/usr/lib/json.py", line 3 in loads
  File "{ROOT}/optc/compiling/recipes/recipe.py", line 7 in _read
  File "{ROOT}/optc/cli/main.py", line 9 in run'''
    assert place_in(dump) == "optc/compiling/recipes/recipe.py:7 _read"


def test_what_is_wrong_without_an_exception_is_named() -> None:
    with pytest.raises(WrongError, match="lost: 3"):
        expect(False, "lost", 3)
    outcome = outcome_of(lambda: expect(False, "lost", 3))
    assert (outcome.kind, outcome.what) == ("raw", "lost")
