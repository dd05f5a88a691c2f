"""Replayed steps: the same bits as the virtual machine's, and what is refused."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest

from optc.backends.tvm.program import Call, Function, Program, Tensor, replayable
from optc.backends.tvm.replay import replay as replay_module
from optc.backends.tvm.replay.recording import KernelCall, Recording
from optc.backends.tvm.replay.replay import Replays
from optc.backends.tvm.replay.replay_plan import NotReplayableError, PlanMemory
from optc.backends.tvm.runtime_libs import import_ffi
from tests.backends.tvm.engine_driver import SHAPE, Engine, EngineDriver

GetEngine = Callable[[str], Engine]
TOKENS = np.random.default_rng(5).integers(0, SHAPE.vocab, (3, 200)).tolist()
NEVER = 1 << 30


def _history() -> list[dict[int, int]]:
    """New rows of each sequence: prefill, then few shapes in turn while block tables grow."""
    decode = [{0: 1}, {0: 1, 1: 1}, {1: 3, 0: 1}, {0: 1, 1: 1}, {0: 1}]
    return [{0: 5, 1: 11}, *decode * 8, {2: 70}, {0: 1, 1: 1, 2: 1}, *decode * 2]


def _run(engine: Engine) -> list[np.ndarray[Any, Any]]:
    driver, done, logits = EngineDriver(engine.load()), {0: 0, 1: 0, 2: 0}, []
    for counts in _history():
        rows = {}
        for sequence, count in counts.items():
            rows[sequence] = TOKENS[sequence][done[sequence] : done[sequence] + count]
            done[sequence] += count
        logits.append(driver.step(rows))
    driver.engine.close()
    return logits


@pytest.fixture
def replayed(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, ...]]:
    """Widths of the block tables of all replayed steps."""
    widths: list[tuple[int, ...]] = []
    original = Replays._replay

    def noted(self: Replays, steps: Any, plan: Any, inputs: Any) -> None:
        widths.append(tuple(inputs.tensors[5].shape))
        original(self, steps, plan, inputs)

    monkeypatch.setattr(Replays, "_replay", noted)
    return widths


@pytest.mark.parametrize("name", ["fp32", "int8", "int4"])
def test_replayed_steps_have_the_bits_of_the_virtual_machine(
    engines: GetEngine,
    monkeypatch: pytest.MonkeyPatch,
    replayed: list[tuple[int, ...]],
    name: str,
) -> None:
    monkeypatch.setattr(replay_module, "PATIENCE", NEVER)
    expected = _run(engines(name))
    assert not replayed
    monkeypatch.setattr(replay_module, "PATIENCE", 3)
    for ours, theirs in zip(_run(engines(name)), expected, strict=True):
        np.testing.assert_array_equal(ours, theirs)
    # most steps of three shapes, and tables of several widths within a shape
    assert len(replayed) > 30
    assert len({shape for shape in replayed if shape[1] == 2}) > 2


def test_few_shapes_are_kept(
    engines: GetEngine, monkeypatch: pytest.MonkeyPatch, replayed: list[tuple[int, ...]]
) -> None:
    """Shapes that fall out are recorded again; results stay the same."""
    monkeypatch.setattr(replay_module, "PATIENCE", NEVER)
    expected = _run(engines("int8"))
    monkeypatch.setattr(replay_module, "PATIENCE", 1)
    monkeypatch.setattr(replay_module, "MAX_SHAPES", 2)
    for ours, theirs in zip(_run(engines("int8")), expected, strict=True):
        np.testing.assert_array_equal(ours, theirs)
    assert replayed


def test_new_pools_make_recorded_steps_invalid(
    engines: GetEngine, monkeypatch: pytest.MonkeyPatch, replayed: list[tuple[int, ...]]
) -> None:
    monkeypatch.setattr(replay_module, "PATIENCE", 1)
    engine = engines("int8").load()
    logits = []
    for seed in (0, 1):  # other blocks, in pools at another place
        driver = EngineDriver(engine, seed=seed)
        logits.append([driver.step({0: [token]}) for token in TOKENS[0][:6]])
    np.testing.assert_array_equal(*logits)
    assert len(replayed) == 10


def test_a_failing_kernel_is_an_error(engines: GetEngine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(replay_module, "PATIENCE", 1)
    engine: Any = engines("int8").load()
    driver = EngineDriver(engine)
    driver.step({0: [1]})
    (steps,) = engine._replays._steps.values()
    steps.plan.tensors["ndim"][steps.plan.table[:3, 2].sum()] = 7  # of the fourth call
    with pytest.raises(RuntimeError, match="kernel call 3 of a replayed step failed"):
        driver.step({0: [1]})


def test_engines_whose_tensors_follow_the_tables_are_not_replayed() -> None:
    call = Call("k", {}, (), (Tensor("a", "float32", ("T", 4)),))
    other = replace(call, outputs=(Tensor("b", "int32", ("B", "P+1")),))
    for calls, expected in (((call,), True), ((call, other), False)):
        program = Program((Function("step", (), calls, "a"),), {}, "x")
        assert replayable(program) is expected


@dataclass
class _Scalar:
    value: int


def test_what_cannot_be_replayed_says_why() -> None:
    wrap = import_ffi().from_dlpack
    memory = PlanMemory(lambda name: len(name))
    data = np.zeros(64, np.float32)
    given, whole, part = wrap(np.zeros(4, np.int32)), wrap(data[:32]), wrap(data[16:48])
    stray = wrap(np.zeros(4, np.float32))

    def plan(*arguments: Any, result: Any = whole, complete: bool = True) -> None:
        recording = Recording((KernelCall("k", arguments),), (result,), complete)
        memory.plan(recording, (given,), ())

    plan(given, whole)
    for arguments, options, message in (
        ((given, whole), {"complete": False}, "the virtual machine itself"),
        ((given, _Scalar(1)), {}, "an argument is of type _Scalar"),
        ((given, whole, part), {}, "two tensors overlap in part"),
        ((whole, given), {}, "its buffers are others"),
        ((given, whole), {"result": stray}, "its result is no kernel's output"),
    ):
        with pytest.raises(NotReplayableError, match=message):
            plan(*arguments, **options)  # type: ignore[arg-type]


def test_a_result_in_given_memory_stays_there() -> None:
    wrap = import_ffi().from_dlpack
    given, logits = wrap(np.zeros(4, np.int32)), wrap(np.zeros((2, 4), np.float32))
    recording = Recording((KernelCall("k", (given, logits)),), (logits,), True)
    plan, _ = PlanMemory(lambda name: 1).plan(recording, (given,), (logits,))
    assert plan.results == [None]
    assert plan.tensors["data"].tolist() == [given.data_ptr(), logits.data_ptr()]


def test_buffers_grow_and_say_that_they_moved() -> None:
    wrap = import_ffi().from_dlpack
    memory = PlanMemory(lambda name: 1)
    given = wrap(np.zeros(4, np.int32))
    moved = []
    for count in (8, 16, 200, 100):
        whole = wrap(np.arange(count, dtype=np.float32))
        recording = Recording((KernelCall("k", (given, whole)),), (whole,), True)
        plan, moves = memory.plan(recording, (given,), ())
        moved.append(moves)
        # constants that kernels read are copied with the rest
        (result,) = plan.results
        assert result is not None
        np.testing.assert_array_equal(result, np.arange(count, dtype=np.float32))
        assert result.ctypes.data % 64 == 0
    assert moved == [False, False, True, False]
