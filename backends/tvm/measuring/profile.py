"""Timing the kernels of a step one by one (`optc.proof.roofline.measurable.Profiler`).

A second virtual machine runs the step once and tells every call. The calls are then
replayed in order, on the same tensors and therefore with the same contents of the caches as in a
step, each timed from outside; what such a call costs by itself is measured with an empty kernel.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np

from optc.backends.tvm.engine_files import code_files
from optc.backends.tvm.loaded.executable import TvmExecutable
from optc.backends.tvm.loaded.loader import CPU_DEVICES, kernel_library, load_engine, open_vm
from optc.backends.tvm.measuring.ceilings import NOTHING, NOTHING_OPERANDS
from optc.backends.tvm.replay.recording import Recorder
from optc.backends.tvm.runtime_libs import import_ffi
from optc.proof.roofline.measurable import KernelTime, StepTimes
from optc.runtime.executable.executable import StepBatch, StepInterface

#: Calls of the empty kernel of which the fastest counts.
_CALIBRATION = 200

#: A kernel's name, its function and its arguments.
_Call = tuple[str, Callable[..., Any], tuple[Any, ...]]


class TvmProfiler:
    """A loaded engine and its kernels. Use it from one thread."""

    def __init__(
        self, executable: TvmExecutable, ffi: ModuleType, library: Any, recorder: Recorder
    ) -> None:
        self._executable = executable
        self._ffi = ffi
        self._library = library
        self._recorder = recorder

    def allocate_kv(self, blocks_per_group: tuple[int, ...], block_size: int) -> None:
        """As `TvmExecutable.allocate_kv`."""
        self._executable.allocate_kv(blocks_per_group, block_size)

    def time_step(
        self, batch: StepBatch, rounds: int, before: Callable[[], None] = lambda: None
    ) -> StepTimes:
        """Time the step and its kernels in turn; the fastest round of each call counts.

        Raises:
            InputError: As `TvmExecutable.step`.
        """
        calls = self._record(batch)
        call_s = self._call_s()
        steps, replays = [], []
        for _ in range(rounds):
            before()
            started = time.perf_counter()
            self._executable.step(batch)
            steps.append(time.perf_counter() - started)
            replays.append(_replay(calls))
        fastest = [min(seconds) for seconds in zip(*replays, strict=True)]
        return StepTimes(min(steps), _by_kernel(calls, fastest, call_s), call_s, tuple(steps))

    def close(self) -> None:
        """Release the engine."""
        self._executable.close()

    def _record(self, batch: StepBatch) -> list[_Call]:
        """The kernel calls of one step, in order."""
        recording = self._recorder.record(self._executable.arguments(batch))
        find = cache(self._library.get_function)
        return [(call.name, find(call.name), call.arguments) for call in recording.calls]

    def _call_s(self) -> float:
        """Seconds of a timed call of a kernel that does nothing."""
        nothing = self._library.get_function(NOTHING)
        operand = self._ffi.from_dlpack(np.zeros(1, np.float32))
        call = (NOTHING, nothing, (operand,) * NOTHING_OPERANDS)
        return min(_replay([call] * _CALIBRATION))


def open_profiler(
    folder: Path, spec: StepInterface, data: dict[str, Any], threads: int
) -> TvmProfiler:
    """Load the engine in ``folder`` for profiling.

    Raises:
        UnavailableError, ArtifactError: As `optc.backends.tvm.loaded.loader.load_engine`.
    """
    executable = load_engine(folder, spec, data, threads)
    ffi, engine = import_ffi(), folder / code_files().engine
    library = kernel_library(ffi, engine, NOTHING)
    recorder = Recorder(open_vm(ffi, engine, CPU_DEVICES), library)
    return TvmProfiler(executable, ffi, library, recorder)


def _replay(calls: list[_Call]) -> list[float]:
    """Seconds of each call."""
    clock = time.perf_counter
    seconds = []
    for _, function, arguments in calls:
        started = clock()
        function(*arguments)
        seconds.append(clock() - started)
    return seconds


def _by_kernel(calls: list[_Call], seconds: list[float], call_s: float) -> tuple[KernelTime, ...]:
    counts: dict[str, int] = {}
    totals: dict[str, float] = {}
    for (name, _, _), taken in zip(calls, seconds, strict=True):
        counts[name] = counts.get(name, 0) + 1
        totals[name] = totals.get(name, 0.0) + max(taken - call_s, 0.0)
    return tuple(KernelTime(name, counts[name], totals[name]) for name in counts)
