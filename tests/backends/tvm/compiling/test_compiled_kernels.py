"""Kernels that are compiled on their own run, and the ceilings with them."""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import tvm_ffi

from optc.backends.tvm.compiling.compiled_kernels import compiled_kernels
from optc.backends.tvm.isa import isa_of
from optc.backends.tvm.loaded.thread_pool import want_threads
from optc.backends.tvm.measuring.ceilings import Meter
from optc.backends.tvm.measuring.ceilings_kernels import ceiling_kernels
from optc.system.hardware.target import parse_target


def _ceilings() -> Mapping[str, Any]:
    isa = isa_of(parse_target("native"))
    want_threads(1)
    meter = Meter(tvm_ffi, compiled_kernels(ceiling_kernels(isa), isa), isa, 1, 8 << 20)
    meter.measure()
    return meter.ceilings()


def test_ceilings_of_a_compiled_library() -> None:
    # Threads are wanted for the calling thread's engines: not for those of other tests.
    with ThreadPoolExecutor(1) as own:
        ceilings = own.submit(_ceilings).result()
    assert {"read", "int8", "fp32"} <= set(ceilings)
    assert all(ceiling.best > 0 for ceiling in ceilings.values())
