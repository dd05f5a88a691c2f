"""Kernels compiled for this machine's CUDA device, which may be the emulator."""

from __future__ import annotations

from dataclasses import asdict
from functools import cache
from typing import Any

import numpy as np
import numpy.typing as npt
import tvm
import tvm_ffi

from optc.backends.tvm.compiling.emit import KERNELS
from optc.backends.tvm.kernels.attention.paged_attention import PagedAttention
from optc.backends.tvm_cuda import dependent_launch
from optc.backends.tvm_cuda.gpu import tvm_target
from optc.backends.tvm_cuda.images import COMPILE
from optc.backends.tvm_cuda.kernels.kv import POOLS
from optc.backends.tvm_cuda.kernels.launch import device_source
from optc.backends.tvm_cuda.kernels.table import device_function
from optc.backends.tvm_cuda.step_memory import range_values
from optc.backends.tvm_cuda.toolchain import device_compiler
from optc.system.hardware.machine import this_machine
from optc.system.hardware.target import cuda_target

Array = npt.NDArray[Any]
#: Types of pools that kernels read.
KV_TYPES = tuple(POOLS)
#: Kernel by the name of its config's class.
_NAMES = {class_name: kernel for kernel, (_, class_name, _) in KERNELS.items()}


@cache
def compiled(config: Any) -> Any:
    """The compiled library of a kernel, called ``main``."""
    (sm, *_) = this_machine().sm
    compile_source = device_compiler()
    tvm_ffi.register_global_func(
        COMPILE, lambda code: compile_source(device_source(code), sm), override=True
    )
    function = device_function(_NAMES[type(config).__name__], config)
    module = tvm.IRModule({"main": function.with_attr("global_symbol", "main")})
    target = cuda_target(sm)
    return tvm.compile(module, tvm_target(target), tir_pipeline=dependent_launch.register(target))


def run(config: Any, *arrays: Array) -> list[Array]:
    """Call a kernel on copies of ``arrays``; returns all of them as they are afterwards. float16
    passes as its bits."""
    bits = [a.view(np.uint16) if a.dtype == np.float16 else a for a in arrays]
    if isinstance(config, PagedAttention):  # its own memory for ranges, before the result
        bits.insert(-1, np.full(range_values(asdict(config)), np.nan, np.float32))
    tensors = [tvm.runtime.tensor(np.ascontiguousarray(a), tvm.cuda()) for a in bits]
    compiled(config)["main"](*tensors)
    return [tensor.numpy() for tensor in tensors]
