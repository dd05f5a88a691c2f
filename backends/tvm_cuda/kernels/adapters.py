"""LoRA adapters by row: two kernels behind a linear layer."""

from __future__ import annotations

import tvm

from optc.backends.tvm.kernels.dsl.script import kernel, round_up
from optc.backends.tvm.kernels.token_wise.adapters import AdapterGrow, AdapterShrink
from optc.backends.tvm_cuda.kernels.launch import launch, template
from optc.errors import UnsupportedError

#: Threads of a block: ``ADAPTER_WARPS`` of the device code.
_THREADS, _WARP = 256, 32
#: Columns of a block that grows.
_COLUMNS = 128


def adapter_shrink(config: AdapterShrink) -> tvm.tirx.PrimFunc:
    """As `optc.backends.tvm.kernels.token_wise.adapters.adapter_shrink`.

    Raises:
        UnsupportedError: Activations have 16 bits.
    """
    if config.quantized and config.bits != 8:
        raise UnsupportedError(
            "activations of 16 bits have no CUDA kernel",
            where="adapter_shrink",
            hint="compile with --set quantize-weights.activation_bits=8",
        )
    k, width = config.k, config.width
    stride, dtype = (round_up(k, 32), "int8") if config.quantized else (k, "float32")
    with kernel("adapter_shrink") as builder:
        rows, slots = builder.size(), builder.size()
        x = builder.argument("x", (rows, stride), dtype)
        scale = builder.argument("scale", (rows,)) if config.quantized else x
        adapters = builder.argument("adapters", (rows,), "int32")
        a = builder.argument("a", (slots, k, width))
        out = builder.argument("out", (rows, width))
        element = "signed char" if config.quantized else "float"
        function = template("adapter_shrink", element, k, stride, width, config.quantized)
        grid = (rows, -(-width // _WARP))
        launch(function, grid, _THREADS, (x, scale, adapters, a, out))
    return builder.finish()


def adapter_grow(config: AdapterGrow) -> tvm.tirx.PrimFunc:
    """As `optc.backends.tvm.kernels.token_wise.adapters.adapter_grow`, a launch for each part."""
    n, rank, starts = config.n, config.rank, tuple(config.starts)
    width = rank * len(starts)
    with kernel("adapter_grow") as builder:
        rows, slots = builder.size(), builder.size()
        y = builder.argument("y", (rows, n))
        h = builder.argument("h", (rows, width))
        adapters = builder.argument("adapters", (rows,), "int32")
        b = builder.argument("b", (slots, rank, n))
        out = builder.argument("out", (rows, n))
        for part, (start, stop) in enumerate(zip(starts, (*starts[1:], n), strict=True)):
            function = template("adapter_grow", n, width, rank, part * rank, start, stop)
            grid = (rows, -(-(stop - start) // _COLUMNS))
            launch(function, grid, _COLUMNS, (y, h, adapters, b, out))
    return builder.finish()
