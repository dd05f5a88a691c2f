"""How long the kernels of an engine take to compile, by kind."""

from __future__ import annotations

from typing import Any

from optc.backends.tvm.program import Call, Program

#: Seconds of one thread at 2.5 GHz (Cascade Lake); others are small.
_KERNEL_S = {"int_matmul": 1.1, "float_matmul": 1.1, "paged_attention": 2.2, "sampling": 1.2}
_SMALL_S = 0.2
#: Of matmuls by weights of so many bits, whose unpacking is unrolled.
_FEW_BITS_S = {2: 6.0, 3: 8.0, 4: 4.7, 5: 8.0, 6: 6.3}
#: Attention to int4 keys and values, and to those of the latest tokens beside, as shares more.
_INT4, _RECENT = 0.5, 1.3


def compile_seconds(program: Program) -> float:
    """Of all distinct kernels, one after the other."""
    calls = {call.key: call for function in program.functions for call in function.calls}
    return sum(map(_seconds, calls.values()))


def _seconds(call: Call) -> float:
    if call.kernel == "two_level_matmul":
        return _FEW_BITS_S.get(call.config["bits"], max(_FEW_BITS_S.values()))
    seconds = _KERNEL_S.get(call.kernel, _SMALL_S)
    return seconds * _of_attention(call.config) if call.kernel == "paged_attention" else seconds


def _of_attention(config: dict[str, Any]) -> float:
    if config.get("kv_dtype") != "int4":
        return 1.0
    return 1 + _INT4 + (_RECENT if config.get("recent") else 0)
