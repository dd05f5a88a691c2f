"""Functions of TIR whose body is a launch of device code.

The device functions are templates of CUDA C++ in ``../sources``: a configuration becomes template
arguments, so that the device compiler sees constants. TIR declares the buffers, checks shapes, and
launches.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path

from tvm.backend.cuda.op import cuda_func_call
from tvm.tirx.script.builder import ir as tir

from optc.backends.tvm.kernels.dsl.script import Expr

_FOLDER = Path(__file__).parent.parent / "sources"
#: Every file, in an order in which each finds what it needs.
_FILES = (
    "types",
    "order",
    "convert",
    "common",
    "rows",
    "hadamard",
    "quantize",
    "norm",
    "activation",
    "embedding",
    "pools",
    "kv",
    "mma",
    "attention_rows",
    "attention_scalar",
    "attention_mma",
    "attention",
    "attention_tiles",
    "matmul",
    "matmul_few",
    "matmul_many",
    "adapters",
    "router",
    "experts",
)
#: Stands for the device code in the functions of TIR.
_MARK = "// device code of optc"


def device_source(emitted: str) -> str:
    """The source that TVM emitted for such functions with the device code in its place; TVM's own
    headers, which come before and of which nothing is used, are cut off."""
    files = ((_FOLDER / f"{name}.cuh").read_text() for name in _FILES)
    return "\n".join([*files, emitted[emitted.index(_MARK) :]])


def float_bits(value: float) -> str:
    """A template argument that stands for a float32: its bits."""
    return f"0x{struct.unpack('<I', struct.pack('<f', value))[0]:08x}u"


def template(name: str, *arguments: object) -> str:
    """``optc::name<…>``; Python's booleans become C++'s."""
    texts = (str(a).lower() if isinstance(a, bool) else str(a) for a in arguments)
    return f"optc::{name}<{', '.join(texts)}>"


def launch(
    function: str,
    grid: Sequence[Expr | int],
    threads: int,
    buffers: Sequence[Expr],
    *sizes: Expr,
    waits: bool = False,
) -> None:
    """Launch the device function ``function`` in blocks of ``threads`` threads. It may start before
    the kernels before it have ended (``order.cuh``), and waits for them first of all.

    Args:
        function: As `template` gives it.
        grid: Blocks along x and perhaps y and z.
        threads: Of a block.
        buffers: Passed as pointers.
        sizes: Passed behind them, int32.
        waits: The device function waits by itself, once it has fetched weights.
    """
    values = [*(buffer.data for buffer in buffers), *sizes]
    with ExitStack() as stack:
        for axis, count in zip("xyz", grid, strict=False):
            stack.enter_context(tir.launch_thread(f"blockIdx.{axis}", count))
        stack.enter_context(tir.launch_thread("threadIdx.x", threads))
        begin = ["let_next_kernel_start", *([] if waits else ["wait_for_kernels_before"])]
        for name in begin:
            tir.evaluate(cuda_func_call(f"optc::{name}", source_code=_MARK))
        tir.evaluate(cuda_func_call(function, *values, source_code=_MARK))
