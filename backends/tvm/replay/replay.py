"""Steps of a shape that comes again and again, replayed without the virtual machine.

Between kernels, TVM's virtual machine counts references, makes views and dispatches; before the
first one, hundreds of arguments are passed from Python. For steps of equal shape all of that ends
in the same addresses and sizes, so the kernel calls are recorded once, with arguments in memory of
this module, and later run by one loop (`optc.backends.tvm.kernels.token_wise.call_list`). The
kernels and their order are the same, and so are the results.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from optc.backends.tvm.loaded.libraries import open_library
from optc.backends.tvm.loaded.staging import StepInputs
from optc.backends.tvm.replay.recording import Recorder
from optc.backends.tvm.replay.replay_plan import NotReplayableError, Plan, PlanMemory

#: Name of the kernel that runs a list of calls.
REPLAY = "replay_calls"
#: Rows up to which it is worth while: what lies between kernels depends on no number of rows.
MAX_ROWS = 64
#: Steps of a shape that the virtual machine runs before one is recorded: recording costs as much
#: as fifty steps gain.
PATIENCE = 16
#: Shapes that are kept; the oldest goes.
MAX_SHAPES = 64


@dataclass
class _Steps:
    """Steps of one shape.

    Attributes:
        count: Those that the virtual machine ran.
        plan: Once recorded.
        table: The plan's list of calls as a tensor.
        results: Its results as tensors.
        inputs: Those that the plan reads now.
    """

    count: int = 0
    plan: Plan | None = None
    table: Any = None
    results: tuple[Any, ...] = ()
    inputs: StepInputs | None = None


class Replays:
    """Decides which steps are replayed, and replays them. Use it from one thread.

    Args:
        ffi: The ``tvm_ffi`` package.
        engine: The engine's library.
        run: The kernel `REPLAY`.
        open_recorder: Makes the recorder when the first step is to be recorded.
    """

    def __init__(
        self, ffi: Any, engine: Path, run: Callable[..., Any], open_recorder: Callable[[], Recorder]
    ) -> None:
        self._ffi = ffi
        self._engine = open_library(engine)
        self._run = run
        self._open_recorder = open_recorder
        self._recorder: Recorder | None = None
        self._failed = np.zeros(1, np.int32)
        self._failed_tensor = ffi.from_dlpack(self._failed)
        self._steps: dict[tuple[int, ...], _Steps] = {}
        self._memory = PlanMemory(self._address_of)
        self._possible = True

    def step(self, inputs: StepInputs, fixed: Sequence[Any]) -> tuple[Any, ...] | None:
        """Run a step if its shape was recorded, or has come often enough to be recorded now.

        Args:
            inputs: The step's own tensors.
            fixed: Weights, pools and given memory, the same for all steps of a shape; `clear` has
                been called if they changed.

        Returns:
            Its results, valid until the next step; None if the caller has to run the step.
        """
        steps = self._steps.get(inputs.shape)
        if steps is None:
            steps = self._remember(inputs.shape)
        if steps.plan is not None:
            self._replay(steps, steps.plan, inputs)
            return steps.results
        steps.count += 1
        if not self._possible or steps.count < PATIENCE or inputs.shape[0] > MAX_ROWS:
            return None
        return self._record(steps, inputs, fixed)

    def clear(self) -> None:
        """Forget the recorded steps: weights or pools have moved, or the engine is closed."""
        self._steps.clear()

    def _remember(self, shape: tuple[int, ...]) -> _Steps:
        if len(self._steps) >= MAX_SHAPES:
            self._steps.pop(next(iter(self._steps)))
        return self._steps.setdefault(shape, _Steps())

    def _replay(self, steps: _Steps, plan: Plan, inputs: StepInputs) -> None:
        if steps.inputs is not inputs:
            plan.set_inputs(inputs.tensors)
            steps.inputs = inputs
        self._run(steps.table, self._failed_tensor)
        if self._failed[0]:
            raise RuntimeError(f"kernel call {self._failed[0] - 1} of a replayed step failed")

    def _record(self, steps: _Steps, inputs: StepInputs, fixed: Sequence[Any]) -> tuple[Any, ...]:
        """Run a step on the virtual machine and keep its calls."""
        if self._recorder is None:
            self._recorder = self._open_recorder()
        recording = self._recorder.record((*inputs.tensors, *fixed))
        try:
            plan, moved = self._memory.plan(recording, inputs.tensors, fixed)
        except NotReplayableError:
            self._possible = False  # nor is any other step of this engine
        else:
            if moved:
                for other in self._steps.values():
                    other.plan = other.table = None
            steps.plan, steps.inputs = plan, inputs
            steps.table = self._ffi.from_dlpack(plan.table)
            steps.results = tuple(
                given if ours is None else self._ffi.from_dlpack(ours)
                for given, ours in zip(recording.results, plan.results, strict=True)
            )
        return recording.results

    def _address_of(self, name: str) -> int:
        address = ctypes.cast(self._engine[f"__tvm_ffi_{name}"], ctypes.c_void_p).value
        if address is None:
            raise NotReplayableError(f"{name} has no address")
        return address
