"""Runs compiled kernels; started by an emulated Python of aarch64 (`tests.arm.emulator`).

Requests and answers are pickled, each behind its length (8 bytes).
"""

from __future__ import annotations

import os
import pickle
import struct
import sys
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

os.environ["TVM_FFI_DISABLE_TORCH_C_DLPACK"] = "1"

from optc.backends.tvm.runtime_libs import import_ffi, open_runtime
from tests.arm.mach_loader import MachLibrary


@cache
def loaded(library: str) -> Any:
    return import_ffi().load_module(library)


@cache
def in_memory(library: str) -> MachLibrary:
    return MachLibrary(Path(library))


def call(request: dict[str, Any]) -> list[Any]:
    """The request's arrays as the kernel leaves them."""
    arrays = [aligned(array) for array in request["arrays"]]
    if request["library"].endswith(".dylib"):
        in_memory(request["library"]).call(request["function"], arrays)
        return arrays
    tensors = [import_ffi().from_dlpack(array) for array in arrays]
    loaded(request["library"])[request["function"]](*tensors)
    return arrays


def aligned(array: Any) -> Any:
    """A copy at a multiple of 64 bytes, as kernels may expect."""
    memory = np.zeros(array.nbytes + 64, np.uint8)
    start = -memory.ctypes.data % 64
    copy = memory[start : start + array.nbytes].view(array.dtype).reshape(array.shape)
    copy[...] = array
    return copy


def main() -> None:
    requests, answers = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # what libraries print must not come between answers
    import_ffi()
    open_runtime(Path(sys.argv[1]))
    while head := requests.read(8):
        request = pickle.loads(requests.read(struct.unpack("=q", head)[0]))
        try:
            answer: Any = call(request)
        except Exception as error:  # noqa: BLE001 - the caller raises it
            answer = repr(error)
        content = pickle.dumps(answer, 5)
        answers.write(struct.pack("=q", len(content)) + content)
        answers.flush()


main()
