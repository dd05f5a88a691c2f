"""Bytes and operations of a step, counted by hand from the model's shape."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest

from optc.backend import BuildOptions
from optc.backends.tvm.isa import isa_of
from optc.backends.tvm.lowering.costs import step_costs
from optc.backends.tvm.lowering.lower_model import lower_model
from optc.backends.tvm.program import kernel_names
from optc.proof.roofline.costs import StepCosts, step_work
from optc.system.hardware.target import parse_target
from tests.backends.tvm.engine_driver import (
    BF16,
    BF16_KV,
    FUSED,
    INT4,
    INT4_TWO_LEVEL,
    INT8,
    INT8_KV,
    SHAPE,
)
from tests.backends.tvm.sparse.sparse_models import SPARSE, pruned_model
from tests.runtime.support.toy import toy_spec
from tests.support.families import model_after

OPTIONS = BuildOptions(max_context=64)
TARGET = parse_target("x86-64-v4-vnni")
#: Weights of a layer (qkv 128, o 64, gate and up 128, down 64 channels, all of 64 inputs): 24576.
LAYERS, LAYER, CHANNELS = 2, 64 * (128 + 64 + 128 + 64), 128 + 64 + 128 + 64
HEAD = 64 * 128
#: Two norms a layer and the last one, 64 floats each.
NORMS = 5 * 64 * 4


def costs(pipeline: str, target: str = "x86-64-v4-vnni") -> StepCosts:
    chosen = parse_target(target)
    lowered = lower_model(model_after(pipeline, SHAPE), chosen, OPTIONS)
    return step_costs(lowered.program, isa_of(chosen).peaks)


#: Bytes of all weights and of one row of the embedding.
WEIGHTS = {
    "int8": (INT8, LAYERS * (LAYER + 4 * CHANNELS) + HEAD + 4 * 128, 64 + 4),
    # two nibbles a byte; float16 scales and uint8 zero points for each 32 inputs; an int8 head
    "int4": (INT4, LAYERS * LAYER * (0.5 + 3 / 32) + HEAD + 4 * 128, 64 + 4),
    # bits, a scale and a zero point of a byte for each 32 inputs, a float32 scale for each channel
    **{
        f"int{bits}, integer": (
            INT4_TWO_LEVEL.replace("bits=4", f"bits={bits}").replace("_bits=6", "_bits=8"),
            LAYERS * (LAYER * (bits + 0.5) / 8 + 4 * CHANNELS) + HEAD + 4 * 128,
            64 + 4,
        )
        for bits in (5, 3, 2)
    },
    "fp32": (FUSED, 4 * (LAYERS * LAYER + HEAD), 4 * 64),
}


@pytest.mark.parametrize("name", WEIGHTS)
def test_bytes_are_each_weight_once_looked_up_rows_and_kv(name: str) -> None:
    pipeline, weights, row = WEIGHTS[name]
    found = costs(pipeline)
    spec = toy_spec((0, 24))
    # 3 rows at 40 tokens: both groups have one layer of 2 KV heads with 16 + 16 floats
    work = step_work(spec, [3], [40], 3)
    kv = (40 + (24 + 3 - 1)) * 2 * 32 * 4
    assert found.bytes_of(work) == pytest.approx(weights + NORMS + 3 * row + kv)


def test_sparse_weights_cost_their_mask_their_values_and_where_they_begin() -> None:
    lowered = lower_model(
        pruned_model(INT8, replace(SHAPE, tied=False), zeros=0.6), SPARSE, OPTIONS
    )
    found = step_costs(lowered.program, isa_of(SPARSE).peaks)
    total = sum(found.kernels[name].bytes["1"] for name in found.kernels if "matmul" in name)
    tensors = [w.tensors[2] for w in lowered.weights if w.tensors[0].dtype == "uint64"]
    values = sum(int(tensor.shape[0]) for tensor in tensors)
    assert values - 9 * 64 == pytest.approx(0.4 * (LAYERS * LAYER + HEAD), rel=0.02)
    blocks = sum(n // 64 for n in (128, 64, 128, 64) * LAYERS) + 2
    assert total == values + (LAYERS * LAYER + HEAD) / 8 + blocks * (4 * 8 + 64 * 4)
    work = step_work(toy_spec((0, 24)), [3], [40], 3)
    assert found.ops_of(work) == costs(INT8).ops_of(work)
    assert found.peak == "int8"


def test_kv_bytes_are_those_of_its_type() -> None:
    work = step_work(toy_spec((0, 24)), [3], [40], 3)
    tokens = 40 + (24 + 3 - 1)
    full = costs(INT8).bytes_of(work)
    # codes, and a float32 scale of K and one of V for each KV head
    assert full - costs(INT8_KV).bytes_of(work) == tokens * 2 * (32 * 4 - (32 + 8))
    assert costs(BF16).bytes_of(work) - costs(BF16_KV).bytes_of(work) == tokens * 2 * 32 * 2
    kernels = costs(INT8_KV).kernels
    assert {c.peak for name, c in kernels.items() if "paged_attention" in name} == {"int8"}


def test_operations_are_two_per_weight_and_row_and_attention() -> None:
    found = costs(INT8)
    work = step_work(toy_spec((0, 24)), [3], [40], 3)
    pairs = (38 + 39 + 40) + 3 * 24
    # 4 heads, each a product of 16 values with K and one with V
    assert found.ops_of(work) == 2 * 3 * (LAYERS * LAYER + HEAD) + pairs * 4 * 2 * 32


def test_calls_that_only_write_into_pools_cost_nothing_of_their_own() -> None:
    work = step_work(toy_spec((0, 24)), [3], [40], 3)
    unfused = costs("kv-cache")
    written = [cost for name, cost in unfused.kernels.items() if "write_kv" in name]
    assert [(cost.bytes, cost.ops) for cost in written] == [({}, {})] * len(written)
    assert written
    assert unfused.ops_of(work) == costs(FUSED).ops_of(work)


def test_the_head_counts_for_wanted_rows_only() -> None:
    found = costs(INT8)
    spec = toy_spec((0, 24))
    one, three = (found.ops_of(step_work(spec, [3], [40], wanted)) for wanted in (1, 3))
    assert three - one >= 2 * 2 * HEAD


def test_peak_is_that_of_the_weights() -> None:
    assert costs(INT8).peak == costs(INT4).peak == "int8"
    # without VNNI, values of 4 bits are summed in half as many instructions
    assert (costs(INT8, "x86-64-v3").peak, costs(INT4, "x86-64-v3").peak) == ("int8", "int4")
    assert costs(FUSED).peak == "fp32"
    # no bfloat16 instructions: those weights are multiplied as float32
    assert costs(BF16).peak == "fp32"


def test_every_kernel_of_the_step_has_its_costs() -> None:
    program = lower_model(model_after(INT8, SHAPE), TARGET, OPTIONS).program
    step = next(f for f in program.functions if f.name == "step")
    names = kernel_names(program)
    calls = Counter(names[c.key] for c in step.calls if c.key in names)
    found = step_costs(program, isa_of(TARGET).peaks).kernels
    assert {name: cost.calls for name, cost in found.items()} == calls
    # layers share their kernels: the names do not grow with depth
    assert max(calls.values()) >= LAYERS
