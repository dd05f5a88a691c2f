"""The soak on a toy artifact: what it finds, and that it says so however it ends."""

from __future__ import annotations

import json
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import optc
from benchmarks.soak import __main__ as soak
from benchmarks.soak.adapters import write_adapters
from benchmarks.soak.draws import Draws, Job, Manner
from benchmarks.soak.memory import EXACT, allocated, growth_percent, measure_exactly, resident
from benchmarks.soak.traffic import Outcome, Tally, differences
from benchmarks.soak.watch import idle_faults
from optc import registry
from optc.runtime.adapters.peft import read_peft
from optc.runtime.executable.adapter_spec import AdapterModule, AdapterPart, AdapterSpec
from optc.runtime.executable.executable import Executable, Float32, StepBatch, StepInterface
from optc.runtime.params import SamplingParams
from tests.runtime.support.artifacts import ToyBackend, write_artifact
from tests.runtime.support.toy import ToyExecutable, toy_spec
from tests.runtime.support.traffic import add, drain, make_core


class Faulty(ToyExecutable):
    """Wrong logits in its first steps, or an end after some."""

    wrong_steps, last_step = 0, 10**9

    def step(self, batch: StepBatch) -> Float32:
        logits = super().step(batch)
        if len(self.batches) > self.last_step:
            raise RuntimeError("the engine broke")
        return np.roll(logits, 1, axis=1) if len(self.batches) <= self.wrong_steps else logits


class FaultyBackend(ToyBackend):
    def load(
        self, folder: Path, spec: StepInterface, data: dict[str, Any], threads: int
    ) -> Executable:
        return Faulty(spec)


@pytest.fixture
def arguments(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """A soak of one round, in which each client hands in one request or a few."""
    monkeypatch.setattr(registry, "backend", {"toy": FaultyBackend()}.__getitem__)
    monkeypatch.setenv("OPTC_CACHE", str(tmp_path))
    write_artifact(tmp_path / "artifact")
    before = signal.getsignal(signal.SIGTERM)
    yield [
        str(tmp_path / "artifact"),
        *("--minutes", "0", "--clients", "3", "--output", str(tmp_path / "soak.json")),
    ]
    signal.signal(signal.SIGTERM, before)


def result(tmp_path: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((tmp_path / "soak.json").read_text())
    return found


def test_a_sound_engine_passes(
    arguments: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert soak.main(arguments) == 0
    found = result(tmp_path)
    assert found["rounds"] == 1
    assert found["requests"] >= 3  # a quick client hands in a second one before it is told to stop
    assert found["compared"] == found["requests"]
    assert (found["differences"], found["errors"]) == (0, {})
    assert found["steps"] > 0
    assert f'"requests": {found["requests"]}' in capsys.readouterr().out


@pytest.mark.parametrize("loop", [False, True])
def test_requests_that_are_lost_are_waited_for(
    arguments: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, loop: bool
) -> None:
    drawn = iter([Manner(abandon=2, loop=loop), Manner(abandon=0, loop=loop)])
    monkeypatch.setattr(Draws, "manner", lambda *_: next(drawn, Manner()))
    assert soak.main(arguments) == 0
    found = result(tmp_path)
    assert found["abandoned"] == 2
    assert found["errors"] == {}
    monkeypatch.setattr("benchmarks.soak.__main__.PATIENCE_S", -1.0)
    monkeypatch.setattr(Draws, "manner", lambda *_: Manner(abandon=0))
    if not loop:  # what is read in an event loop is cancelled where the task ends
        assert soak.main([*arguments, "--clients", "40"]) == 1
        assert "a lost request stays for ever" in result(tmp_path)["errors"]


def test_adapters_are_of_the_layers_that_can_be_adapted(tmp_path: Path) -> None:
    parts = (AdapterPart("l.q.weight", 0, 3), AdapterPart("l.k.weight", 3, 5))
    spec = AdapterSpec(3, 16, (AdapterModule(6, 5, parts),))
    found = write_adapters(spec, tmp_path)
    assert sorted(found) == ["noise0", "noise1"]
    one, other = (read_peft(folder, spec)[0] for folder in found.values())
    assert one is not None
    assert other is not None
    assert np.abs(one.b).max() > 0
    assert not np.array_equal(one.a, other.a)
    assert write_adapters(None, tmp_path) == {}


def test_other_tokens_than_alone_are_found(
    arguments: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Faulty, "wrong_steps", 40)
    assert soak.main(arguments) == 1
    found = result(tmp_path)
    assert found["differences"] > 0
    assert "instead of" in found["first_differences"][0]


def test_an_engine_that_dies_is_told_with_the_totals(
    arguments: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Faulty, "last_step", 2)
    assert soak.main(arguments) == 1
    assert any("the engine broke" in error for error in result(tmp_path)["errors"])


def test_totals_are_written_when_it_is_ended(
    arguments: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def end(self: soak.Soak, *rest: object) -> None:
        signal.raise_signal(signal.SIGTERM)

    monkeypatch.setattr(soak.Soak, "traffic", end)
    assert soak.main(arguments) == 130
    assert result(tmp_path)["rounds"] == 1


def test_blocks_that_do_not_come_back_are_found() -> None:
    core, _ = make_core(toy_spec())
    found: list[str] = []
    add(core, [1] * 9, SamplingParams(max_tokens=3))
    core.step()
    idle_faults(core, found)
    assert found == ["idle, but 1 run and 0 wait", "(53,) of (56,) blocks are back"]
    drain(core)
    found.clear()
    idle_faults(core, found)
    assert found == []
    core.scheduler.blocks.pools[0].take(1)
    idle_faults(core, found)
    assert found[0] == "(55,) of (56,) blocks are back"
    assert found[1].startswith("integrity: KV group 0: holders of blocks")


def outcomes(*pairs: tuple[tuple[int, ...], str]) -> tuple[Outcome, ...]:
    return tuple(Outcome(tokens, reason, "") for tokens, reason in pairs)


@pytest.mark.parametrize(
    ("served", "same"),
    [
        (outcomes(((1, 2, 3), "length"), ((4,), "stop")), True),
        (outcomes(((1, 2), "cancelled"), ((), "deadline")), True),
        (outcomes(((1, 2), "length"), ((4,), "stop")), False),
        (outcomes(((1, 3), "cancelled"), ((4,), "stop")), False),
        (outcomes(((1, 2, 3), "length"), ((4,), "length")), False),
    ],
)
def test_only_what_was_cut_may_be_shorter(served: tuple[Outcome, ...], same: bool) -> None:
    job, tally = Job((1,), optc.SamplingParams(n=2)), Tally()
    tally.outcomes[job] = soak.Counter({served: 1})
    alone = outcomes(((1, 2, 3), "length"), ((4,), "stop"))
    assert (differences(tally, job, alone) == []) == same


@pytest.mark.parametrize(
    ("amounts", "percent"),
    [
        ([50, 80, 100, 100, 100, 100, 100, 100], 0),  # what was taken at the beginning stays
        ([1, 1, 1, 1, 100, 101, 102, 103], 100 * 3 / 101.5),
        ([9, 9, 9, 9, 100, 100, 900, 100], 0),  # one high sample
        ([9, 9, 9, 9, 103, 102, 101, 100], -100 * 3 / 101.5),
    ],
)
def test_growth_is_of_the_second_half(amounts: list[float], percent: float) -> None:
    samples = [(10.0 * at, amount) for at, amount in enumerate(amounts)]
    assert growth_percent(samples) == pytest.approx(percent)
    assert growth_percent(samples[:6]) is None


def test_memory_that_is_taken_is_seen() -> None:
    before = resident()
    taken = np.ones(1 << 25, np.uint8)
    after = resident()
    assert after.anonymous - before.anonymous > len(taken) // 2
    assert after.all > after.anonymous


def test_what_was_allocated_is_counted_to_the_byte_and_without_what_was_freed() -> None:
    before = allocated()
    if before is None:
        pytest.skip("the C library has no mallinfo2")
    taken = [np.ones(1 << 20, np.uint8) for _ in range(16)]
    during = allocated()
    del taken
    after = allocated()
    assert during is not None
    assert after is not None
    assert during - before >= 16 << 20
    assert abs(after - before) < 1 << 20  # other threads


def test_a_soak_begins_anew_where_memory_would_not_be_counted_exactly(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    begun: list[tuple[list[str], dict[str, str]]] = []
    monkeypatch.setattr("os.execve", lambda _, *given: begun.append(given))
    monkeypatch.setattr("sys.argv", ["soak", "artifact", "--seed", "1"])
    monkeypatch.delenv("PYTHONMALLOC", raising=False)
    measure_exactly("some.module")
    ((command, environment),) = begun
    assert command[1:] == ["-m", "some.module", "artifact", "--seed", "1"]
    assert environment.items() >= EXACT.items()
    for name, value in EXACT.items():
        monkeypatch.setenv(name, value)
    measure_exactly("some.module")
    assert len(begun) == 1


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({}, 0),
        ({"compared": 0}, 1),
        ({"differences": 1}, 1),
        ({"errors": {"a request waits for ever": 1}}, 1),
        ({"second_half_growth_percent": {"all": 1.9, "anonymous": None}}, 0),
        ({"second_half_growth_percent": {"all": 1.9, "anonymous": 2.0}}, 1),
        ({"second_half_growth_percent": {"anonymous": 1.9, "allocated": 2.0}}, 1),
    ],
)
def test_what_fails_a_soak(changes: dict[str, Any], code: int) -> None:
    sound = {"compared": 5, "differences": 0, "errors": {}, "second_half_growth_percent": {}}
    assert soak.verdict(sound | changes) == code
