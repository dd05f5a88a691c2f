"""Memory that a CUDA engine's step is given beside inputs, weights and pools: for its result, and
for what attention keeps between its kernels.

TVM would allocate both while the step runs: a result for every number of rows that ever had logits,
and ranges of attention in memory that moves when it grows. Memory of the caller's keeps the one
bounded and the other where captured graphs (`optc.backends.tvm.cuda.graphs`) know it to be. What
lies between kernels needs neither: the compiler plans it once, for the largest step.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from optc.backends.tvm.program import Call, Function, Program, Tensor

#: The step's last arguments.
RANGES, LOGITS = "attention_ranges", "logits_memory"
#: Rows up to which a row's ranges of tokens are computed by several blocks of threads, and ranges
#: of a row, as in the device code.
SPLIT_ROWS, ROW_RANGES = 16, 32


def range_values(config: dict[str, Any]) -> int:
    """float32 values that the ranges of a step take in a configuration of paged attention: of each
    row, head and range its values, their largest exponent and the norm."""
    return int(SPLIT_ROWS * config["heads"] * ROW_RANGES * (config["value_dim"] + 2))


def step_range_values(program: Program) -> int:
    """The same of all attention of a step, which shares them; at least one."""
    calls = (c for f in program.functions for c in f.calls if c.kernel == "paged_attention")
    return max((range_values(call.config) for call in calls), default=1)


def with_step_memory(program: Program) -> Program:
    """The program whose ``step`` takes its ranges f32 [N] and the memory of its result f32 [R, V]
    as last arguments, and returns the latter."""
    values = step_range_values(program)
    functions = (f if f.name != "step" else _with_memory(f, values) for f in program.functions)
    return replace(program, functions=tuple(functions))


def _with_memory(step: Function, values: int) -> Function:
    calls = [
        replace(call, updated=(RANGES,)) if call.kernel == "paged_attention" else call
        for call in step.calls
    ]
    (index,) = (i for i, c in enumerate(calls) if step.result in {t.name for t in c.outputs})
    (logits,) = calls[index].outputs
    if calls[index].kernel.startswith("relax."):
        width = int(logits.shape[-1])
        config = {"operation": "scale", "width": width, "constant": 1.0}
        calls.append(Call("elementwise", config, (logits.name,), (), (LOGITS,)))
    else:
        calls[index] = replace(calls[index], outputs=(), updated=(LOGITS,))
    memory = (Tensor(RANGES, "float32", (values,)), Tensor(LOGITS, "float32", logits.shape))
    return replace(step, arguments=(*step.arguments, *memory), calls=tuple(calls), result=LOGITS)
