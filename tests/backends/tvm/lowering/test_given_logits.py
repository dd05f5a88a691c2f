"""Steps leave their logits in memory that they are given: the same one, and not more than used."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from msgspec.structs import replace

from optc.backends.tvm.loaded.logits_memory import WINDOW, LogitsMemory
from optc.backends.tvm.lowering.given_logits import LOGITS, with_given_logits
from optc.backends.tvm.program import Call, Function, Program, Tensor
from optc.backends.tvm.replay import replay
from optc.runtime.executable.executable import StepInterface
from tests.backends.tvm.engine_driver import Engine, EngineDriver

GetEngine = Callable[[str], Engine]
X, Y = Tensor("x", "float32", ("R", 5)), Tensor("y", "float32", ("R", 5))
#: New rows of each sequence, step by step: more and fewer rows of logits, one shape often.
STEPS = [{0: 7}, {0: 1}, {0: 1, 1: 40}, *[{0: 1, 1: 1}] * 6, {1: 3}]


def _program(kernel: str) -> Program:
    step = Function("step", (X,), (Call(kernel, {}, ("x",), (Y,)),), "y")
    other = Function("other", (X,), (Call("k", {}, ("x",), (Y,)),), "y")
    return Program((step, other), {}, "x86-64-v3")


def test_the_kernel_of_the_result_writes_the_last_argument() -> None:
    before = _program("k")
    step, other = with_given_logits(before).functions
    assert other == before.functions[1]
    assert step.arguments == (X, Tensor(LOGITS, "float32", ("R", 5)))
    assert step.calls == (Call("k", {}, ("x",), (), (LOGITS,)),)
    assert step.result == LOGITS


def test_a_result_of_an_operator_that_tvm_lowers_is_copied() -> None:
    before = _program("relax.tanh")
    step = with_given_logits(before).functions[0]
    assert step.calls[0] == before.functions[0].calls[0]
    assert (step.calls[1].kernel, step.calls[1].inputs) == ("elementwise", ("y",))
    assert step.calls[1].updated == (LOGITS,)


def _spec(engine: Engine, rows: int) -> StepInterface:
    return replace(engine.build.spec, max_logit_rows=rows, vocab_size=3000)


def test_rows_that_no_step_needs_any_more_go_back(engines: GetEngine) -> None:
    memory = LogitsMemory(_spec(engines("fp32"), 100), lambda array: array)
    memory.of(100)[:] = 1
    for _ in range(WINDOW - 1):
        memory.of(2)
    assert memory.of(100).all(), "the last steps, the first one included, had 100 rows"
    memory.of(100)[:] = 1
    for _ in range(2 * WINDOW):
        memory.of(2)
    assert memory.of(2).all()
    # pages of 4 KiB or more; what lies on the page of the second row's end stays
    assert not memory.of(100)[24:].any()


def test_all_steps_use_one_memory(engines: GetEngine, monkeypatch: pytest.MonkeyPatch) -> None:
    """Recorded ones too."""
    monkeypatch.setattr(replay, "PATIENCE", 2)
    engine: Any = engines("int8").load()
    driver, addresses = EngineDriver(engine), set()
    for rows in ([1] * 9, [2], [3], [4], [5], [6] * 20):
        batch = driver.sequences.batch({0: rows})
        addresses.add(engine.step(batch).ctypes.data)
    assert len(addresses) == 1
    assert [steps.plan is not None for steps in engine._replays._steps.values()].count(True) == 1
    engine.close()
