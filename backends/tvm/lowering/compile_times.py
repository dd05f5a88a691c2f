"""How long the kernels of an engine take to compile, by kind."""

from __future__ import annotations

from optc.backends.tvm.program import Call, Program

#: Seconds of one thread (`benchmarks.steps.kernel_compile_times`; sparse weights as int8 ones);
#: others are small.
_KERNEL_S = {
    "int_matmul": 0.9,
    "sparse_matmul": 0.9,
    "float_matmul": 0.4,
    "int_experts": 0.8,
    "two_level_experts": 1.4,
    "float_experts": 0.4,
    "paged_attention": 1.9,
    "sampling": 1.1,
}
_SMALL_S = 0.2
#: Of matmuls by weights of so many bits, whose unpacking is unrolled.
_FEW_BITS_S = {2: 3.0, 3: 4.3, 4: 3.0, 5: 4.6, 6: 3.4}
#: Of attention that reads the latest tokens from pools of their own.
_RECENT_S = 5.0


def compile_seconds(program: Program) -> float:
    """Of all distinct kernels, one after the other."""
    calls = {call.key: call for function in program.functions for call in function.calls}
    return sum(map(_seconds, calls.values()))


def _seconds(call: Call) -> float:
    if call.kernel == "two_level_matmul":
        return _FEW_BITS_S[call.config["bits"]]
    if call.kernel == "paged_attention" and call.config.get("recent"):
        return _RECENT_S
    return _KERNEL_S.get(call.kernel, _SMALL_S)
