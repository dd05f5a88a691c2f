"""Times a matmul with one schedule and another; compiles them. Needs TVM."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt
import tvm_ffi

from optc.backends.tvm.compiling.compiled_kernels import compiled_kernels
from optc.backends.tvm.isa import Isa
from optc.backends.tvm.kernels.matmul.int_tiles import int_matmul
from optc.backends.tvm.kernels.matmul.matmul_int import SUM_WIDTH, IntMatmul
from optc.backends.tvm.kernels.matmul.matmul_two_level import TwoLevelMatmul, two_level_matmul
from optc.backends.tvm.loaded.huge_pages import anonymous
from optc.backends.tvm.loaded.thread_pool import want_threads
from optc.backends.tvm.tuning.schedule import TWO_LEVEL, Schedule, Workload
from optc.backends.tvm.tuning.tuning import choose
from optc.cpu_caches import beyond_caches

_T = TypeVar("_T")
#: Products of a sample; less work is repeated, because a single short call is mostly noise.
SAMPLE_WORK = 1 << 24
#: Random bytes that are drawn at once.
_DRAWN_BYTES = 16 << 20


class KernelTimer:
    """Compiles a workload's schedules when they are first asked for, and times them on as many
    threads as ``want_threads`` was told.

    Args:
        workload: The matmul.
        isa: What it is compiled for.
        pool: Bytes that serve as weights (`weight_pool`).
        clock: Seconds.
    """

    def __init__(
        self,
        workload: Workload,
        isa: Isa,
        pool: npt.NDArray[np.uint8],
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        self._isa, self._clock = isa, clock
        self._config = _config(workload)
        self._weights = in_turns(_rotation(self._config, pool))
        self._kernels: dict[Schedule, Callable[..., Any]] = {}
        self._operands: dict[int, tuple[list[Any], Any]] = {}

    def __call__(self, schedule: Schedule, rows: int) -> float:
        """Mean seconds of a call, each on the weights that were not used for longest.

        One call before is not timed: it wakes threads and fetches activations and code.
        """
        if schedule not in self._kernels:
            self._kernels[schedule] = self._compile(schedule)
        kernel = self._kernels[schedule]
        if rows not in self._operands:
            self._operands[rows] = self._activations(rows)
        inputs, out = self._operands[rows]
        kernel(*inputs, *next(self._weights), out)
        work = rows * self._config.n * self._config.k_padded
        sets = [next(self._weights) for _ in range(max(1, SAMPLE_WORK // work))]
        started = self._clock()
        for weights in sets:
            kernel(*inputs, *weights, out)
        return (self._clock() - started) / len(sets)

    def _compile(self, schedule: Schedule) -> Callable[..., Any]:
        config = replace(self._config, schedule=schedule)
        if isinstance(config, TwoLevelMatmul):
            function = two_level_matmul(config, self._isa)
        else:
            function = int_matmul(config, self._isa)
        library = compiled_kernels({config.name: function}, self._isa)
        compiled: Callable[..., Any] = library.get_function(config.name)
        return compiled

    def _activations(self, rows: int) -> tuple[list[Any], Any]:
        width = self._config.k_padded
        inputs = [
            np.ones((rows, width), np.int8),
            np.ones(rows, np.float32),
            np.full((rows, width // SUM_WIDTH), SUM_WIDTH, np.int32),
        ]
        out = np.empty((rows, self._config.n), np.float32)
        return [tvm_ffi.from_dlpack(array) for array in inputs], tvm_ffi.from_dlpack(out)


def _config(workload: Workload) -> IntMatmul | TwoLevelMatmul:
    w = workload
    if w.kernel == TWO_LEVEL:
        return TwoLevelMatmul(w.n, w.k, w.group_size, bits=w.bits)
    return IntMatmul(w.n, w.k, w.bits, w.group_size, w.asymmetric)


def _rotation(config: IntMatmul | TwoLevelMatmul, pool: npt.NDArray[np.uint8]) -> list[list[Any]]:
    """As many sets of the kernel's weights as the pool has room for."""
    shape, _ = config.weights["w"]
    size = int(np.prod(shape))
    sets = []
    for start in range(0, max(1, len(pool) // size) * size, size):
        arrays = [pool[start : start + size].reshape(shape)]
        scales = (name for name in config.weights if name != "w")
        arrays.extend(np.ones(*config.weights[name]) for name in scales)
        sets.append([tvm_ffi.from_dlpack(array) for array in arrays])
    return sets


def weight_pool(least: int) -> npt.NDArray[np.uint8]:
    """Random bytes in memory like that of an engine's weights, at least ``least`` and more than
    caches hold: the weights of a model's layers come from memory."""
    rng = np.random.default_rng(0)
    pool = np.frombuffer(anonymous(max(beyond_caches(), least)), np.uint8)
    for start in range(0, len(pool), _DRAWN_BYTES):
        piece = pool[start : start + _DRAWN_BYTES]
        piece[:] = rng.integers(0, 256, len(piece), np.uint8)
    return pool


def in_turns(sets: Sequence[_T]) -> Iterator[_T]:
    """For ever one of the sets that were not used for longest, half of all and one more.

    Candidates take turns as well: in a plain rotation each would always meet the same sets, and
    some memory is slower than other.
    """
    waiting, rng = list(sets), random.Random(0)
    while True:
        waiting.append(waiting.pop(rng.randrange(len(waiting) // 2 + 1)))
        yield waiting[-1]


@dataclass(frozen=True)
class _Deadline:
    """Whether a moment of the performance counter has passed."""

    until: float

    def __call__(self) -> bool:
        return time.perf_counter() > self.until


def tune(
    workloads: Sequence[Workload], isa: Isa, threads: int, seconds: float
) -> list[dict[str, Any]]:
    """The fastest schedules found in so many seconds, as JSON; those not measured are left out.

    Every workload may use an equal share of the time that is left when its turn comes; what it
    has begun to compare it finishes, so that the whole may take a few candidates longer.
    """
    want_threads(threads)
    pool = weight_pool(max((w.n + 63) // 64 * 64 * (w.k + 31) // 32 * 32 for w in workloads))
    ending = time.perf_counter() + seconds
    chosen = []
    for index, workload in enumerate(workloads):
        now = time.perf_counter()
        if now >= ending:
            break
        until = now + (ending - now) / (len(workloads) - index)
        choice = choose(workload, isa, KernelTimer(workload, isa, pool), _Deadline(until))
        entry = {"workload": asdict(workload), "schedule": asdict(choice.schedule)}
        chosen.append({**entry, "gain": choice.gain})
    return chosen
