"""The best speeds of this machine, measured by loops that every engine carries.

``read`` is the best of several read kernels over one working set, ``int8``, ``int4``, ``bf16`` and
``fp32`` are register-only loops of the instructions that the matmuls use. Needs no compiler.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable
from itertools import cycle
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np

from optc.backends.tvm.engine_data import read_data
from optc.backends.tvm.engine_files import code_files
from optc.backends.tvm.isa import Isa, isa_of
from optc.backends.tvm.loaded.loader import kernel_library, start_runtime
from optc.proof.roofline.ceilings import Ceiling
from optc.system.hardware.target import Target

#: Most bytes that one read kernel goes over: short enough to find a quiet moment.
PIECE_BYTES = 16 << 20
#: Sizes of pieces are multiples of this, so that all read kernels cover them evenly.
_PIECE_UNIT = 128 << 10
#: Parallel chunks of a read kernel.
CHUNKS = 64
#: Independent sums of a compute loop: more than latency times throughput of any core.
SUMS = 12
#: Iterations of a compute loop.
ITERATIONS = 1 << 16
#: Read kernels: how many places of a chunk at once, how many registers from each, and how many
#: cache lines ahead they are fetched.
READERS = ((1, 4, 0), (1, 8, 0), (2, 4, 0), (4, 2, 0), (4, 2, 16))
#: The empty kernel and its number of operands.
NOTHING, NOTHING_OPERANDS = "ceiling_nothing", 6
#: Products that one lane of a multiply-add takes.
_PRODUCTS = {"int8": 4, "int4": 4, "bf16": 2, "fp32": 1}
#: Multiply-adds of a product of tiles of AMX, of which a task takes `ITERATIONS`.
_TILE_PRODUCTS = {"int8": 16 * 16 * 64, "bf16": 16 * 16 * 32}


def reader_name(streams: int, vectors: int, ahead: int) -> str:
    """Name of a read kernel."""
    return f"ceiling_read_{streams}_{vectors}" + (f"_{ahead}" if ahead else "")


def peak_name(kind: str) -> str:
    """Name of the compute loop of ``int8``, ``int4``, ``bf16`` or ``fp32``."""
    return f"ceiling_{kind}"


class Meter:
    """Measures the ceilings (`optc.proof.roofline.ceilings.Meter`). Use it from one thread.

    Args:
        ffi: The ``tvm_ffi`` package; the thread pool of this thread has been set.
        library: Where the kernels are.
        isa: What they were compiled for.
        threads: Threads of the pool.
        working_set_bytes: Bytes that the read kernels go over in turn: those that a step reads,
            so that what fits into a cache is compared with reads from that cache.
        clock: Seconds.
    """

    def __init__(
        self,
        ffi: ModuleType,
        library: Any,
        isa: Isa,
        threads: int,
        working_set_bytes: int,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        self._clock = clock
        wrap = ffi.from_dlpack
        pieces = max(1, -(-working_set_bytes // PIECE_BYTES))
        unit = _PIECE_UNIT
        self._piece = max(unit, working_set_bytes // pieces // unit * unit)
        data = np.ones((pieces, self._piece // 4), np.int32)
        self.read_bytes = data.nbytes
        self._data = cycle([wrap(piece) for piece in data])
        self._readers = [library.get_function(reader_name(*reader)) for reader in READERS]
        self._chunks = wrap(np.zeros((CHUNKS, 16), np.int32))
        self._operands = wrap(np.ones((2, 4 * isa.lanes), np.uint8))
        self._peaks = {}
        self._operations = {}
        for kind in isa.peaks:
            dtype = np.int32 if kind.startswith("int") else np.float32
            out = np.zeros((threads, SUMS * isa.lanes), dtype)
            self._peaks[kind] = (library.get_function(peak_name(kind)), wrap(out))
            products = _PRODUCTS[kind] * out.size
            if isa.amx and kind in _TILE_PRODUCTS:
                products = _TILE_PRODUCTS[kind] * threads
            self._operations[kind] = 2 * products * ITERATIONS
        self._samples: dict[str, list[float]] = defaultdict(list)

    def measure(self) -> dict[str, float]:
        """Read the whole working set once, every piece by another kernel, and run every loop.

        Returns:
            For ``read`` the median rate of the kernel that was fastest in this sample.
        """
        read: dict[int, list[float]] = defaultdict(list)
        for _ in range(max(len(self._readers), self.read_bytes // self._piece)):
            reader = self._readers[0]
            self._readers.append(self._readers.pop(0))
            started = self._clock()
            reader(next(self._data), self._chunks)
            read[id(reader)].append(self._keep("read", self._piece, started))
        found = {"read": max(float(np.median(rates)) for rates in read.values())}
        for kind, (loop, out) in self._peaks.items():
            started = self._clock()
            loop(self._operands, out)
            found[kind] = self._keep(kind, self._operations[kind], started)
        return found

    def ceilings(self) -> dict[str, Ceiling]:
        """All ceilings measured so far: ``read`` in bytes/s, the others in operations/s."""
        return {
            name: Ceiling(max(values), float(np.median(values)))
            for name, values in self._samples.items()
        }

    def _keep(self, name: str, amount: int, started: float) -> float:
        rate = amount / (self._clock() - started)
        self._samples[name].append(rate)
        return rate


def open_meter(folder: Path, data: dict[str, Any], threads: int, working_set_bytes: int) -> Meter:
    """The meter of the engine in ``folder`` (`optc.proof.roofline.measurable.MeasurableBackend`).

    Raises:
        UnavailableError: The engine was built for another CPU.
        ArtifactError: It carries no such loops.
    """
    found = read_data(data)
    ffi = start_runtime(folder, found, threads)
    isa = isa_of(Target("", "cpu", found.features))
    library = kernel_library(ffi, folder / code_files().engine, NOTHING)
    return Meter(ffi, library, isa, threads, working_set_bytes)
