"""What a CUDA engine's step is given, as the compiler sees it."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest
from tvm import relax
from tvm.s_tir import dlight

from optc.backends.tvm.compiling.compiler import relax_pipeline
from optc.backends.tvm.compiling.emit import emit
from optc.backends.tvm.lowering.given_logits import LOGITS
from optc.backends.tvm.lowering.lower_model import lower_model
from optc.backends.tvm.program import Call, Function, Program, Tensor
from optc.backends.tvm_cuda.compiler import make_device_function
from optc.backends.tvm_cuda.gpu import tvm_target
from optc.backends.tvm_cuda.step_memory import (
    RANGES,
    range_values,
    step_range_values,
    with_step_memory,
)
from optc.system.hardware.target import parse_target
from tests.backends.tvm.engine_driver import BF16_KV, OPTIONS, SHAPE
from tests.support.families import model_after


@pytest.fixture(scope="module")
def program() -> Program:
    lowered = lower_model(model_after(BF16_KV, SHAPE), parse_target("cuda:sm_90"), OPTIONS).program
    return replace(lowered, functions=tuple(f for f in lowered.functions if f.name != "sample"))


def test_the_result_and_ranges_are_the_last_arguments(program: Program) -> None:
    step = with_step_memory(program).functions[0]
    ranges, logits = step.arguments[-2:]
    config = next(c.config for c in step.calls if c.kernel == "paged_attention")
    assert ranges == Tensor(RANGES, "float32", (range_values(config),))
    assert logits == Tensor(LOGITS, "float32", ("R", SHAPE.vocab))
    assert step.result == LOGITS
    attention = [c for c in step.calls if c.kernel == "paged_attention"]
    assert [call.updated for call in attention] == [(RANGES,)] * len(SHAPE.windows)
    assert [call.updated for call in step.calls if LOGITS in call.updated] == [(LOGITS,)]
    assert with_step_memory(program).functions[1:] == program.functions[1:]


def test_ranges_hold_the_largest_layer() -> None:
    calls = tuple(
        Call("paged_attention", {"heads": heads, "value_dim": 8}, (), ()) for heads in (2, 6, 4)
    )
    step = Function("step", (), calls, "")
    assert step_range_values(Program((step,), {}, "cuda:sm_90")) == 16 * 6 * 32 * 10


def test_a_step_allocates_the_same_bytes_whatever_its_shape(program: Program) -> None:
    """With TVM's pool of freed memory that means: no more after the first step."""
    with_memory = with_step_memory(program)
    sizes = allocations(with_memory)
    assert len(sizes) > 3
    assert all(size.isdecimal() for size in sizes), sizes
    step, *others = with_memory.functions
    fresh = Tensor("fresh", "float32", ("R", SHAPE.vocab))
    calls = [
        replace(c, updated=(), outputs=(fresh,)) if LOGITS in c.updated else c for c in step.calls
    ]
    own = replace(step, calls=tuple(calls), result="fresh")
    sizes = allocations(replace(with_memory, functions=(own, *others)))
    assert not all(size.isdecimal() for size in sizes), sizes


def allocations(program: Program) -> list[str]:
    """Sizes of what the functions of a program allocate, as TVM prints them."""
    module = emit(program, lambda call: make_device_function(call.kernel, call.config))
    with tvm_target(parse_target(program.target)):
        schedule = dlight.ApplyDefaultSchedule(dlight.gpu.Fallback())
        planned = relax_pipeline(program, schedule)(module)
    functions = [f for f in planned.functions.values() if isinstance(f, relax.Function)]
    texts = [function.script() for function in functions]
    found = [size for text in texts for size in re.findall(r"alloc_storage\(([^,]*),", text)]
    return [re.sub(r"^R\.shape\(\[(\d+)\]\)$", r"\1", size) for size in found]
