"""Memory that a CUDA engine's step is given beside inputs, weights and pools: for its result, and
for what attention keeps between its kernels.

TVM would allocate both while the step runs: a result for every number of rows that ever had logits,
and ranges of attention in memory that moves when it grows. Memory of the caller's keeps the one
bounded and the other where captured graphs (`optc.backends.tvm_cuda.loaded.graphs`) know it to be.
What lies between kernels needs neither: the compiler plans it once, for the largest step.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from optc.backends.tvm.lowering.given_logits import leaving_logits
from optc.backends.tvm.program import Function, Program, Tensor

#: The step's argument before the memory for its logits.
RANGES = "attention_ranges"
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
    calls = tuple(
        replace(call, updated=(RANGES,)) if call.kernel == "paged_attention" else call
        for call in step.calls
    )
    ranges = Tensor(RANGES, "float32", (values,))
    return leaving_logits(replace(step, arguments=(*step.arguments, ranges), calls=calls))
