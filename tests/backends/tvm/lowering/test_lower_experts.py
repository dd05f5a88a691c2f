"""Mixtures of experts as calls: one plan a layer, rows k times as many, and every refusal."""

from __future__ import annotations

from collections.abc import Callable

import onnx_ir as ir
import pytest

from optc.backend import NATIVE
from optc.backends.tvm import BACKEND
from optc.backends.tvm.isa import isa_of
from optc.backends.tvm.lowering.costs import step_costs
from optc.backends.tvm.lowering.lower_model import Lowered, lower_model
from optc.backends.tvm_cuda import BACKEND as CUDA_BACKEND
from optc.errors import UnsupportedError
from optc.proof.roofline.costs import step_work
from optc.system.hardware.target import parse_target
from tests.backends.tvm.engine_driver import OPTIONS, SHAPE
from tests.backends.tvm.experts.models import CHOSEN, EXPERTS, INNER, KINDS, mixture_model
from tests.runtime.support.toy import toy_spec

V3 = parse_target("x86-64-v3")
WIDTH = SHAPE.hidden


def lowered(*kinds: str) -> Lowered:
    return lower_model(mixture_model(kinds), V3, OPTIONS)


def node_of(model: ir.Model, op_type: str) -> ir.Node:
    return next(node for node in model.graph if node.op_type == op_type)


def test_a_layer_is_a_router_a_plan_two_matmuls_and_a_sum() -> None:
    calls = lowered("int8").program.functions[0].calls
    kernels = [call.kernel for call in calls]
    start = kernels.index("top_k_router")
    assert kernels[start - 1 : start + 7] == [
        "float_matmul",
        "top_k_router",
        "quantize",
        "expert_plan",
        "int_experts",
        "gated_activation",
        "int_experts",
        "combine_experts",
    ]
    plan, first, active, second, combined = calls[start + 2 : start + 7]
    assert [tensor.shape for tensor in plan.outputs] == [("2*R",), ("2*R", 3), (1,)]
    assert first.inputs[3:6] == second.inputs[3:6] == tuple(t.name for t in plan.outputs)
    assert first.outputs[0].shape == ("2*R", 2 * INNER)
    assert active.outputs[0].shape == ("2*R", 64)
    assert combined.outputs[0].shape == ("R", WIDTH)
    assert first.config == {
        "n": 2 * INNER,
        "k": WIDTH,
        "bits": 8,
        "group_size": 0,
        "asymmetric": False,
        "bias": True,
        "experts": EXPERTS,
        "chosen": CHOSEN,
        "spread": True,
    }
    assert second.config["spread"] is False


@pytest.mark.parametrize(
    ("kind", "kernel"),
    [
        ("fp32", "float_experts"),
        ("bf16", "float_experts"),
        ("int4", "int_experts"),
        ("two-level", "two_level_experts"),
    ],
)
def test_every_type_of_weights_has_a_kernel(kind: str, kernel: str) -> None:
    found = lowered("fp32", kind)
    calls = [c for c in found.program.functions[0].calls if c.kernel.endswith("_experts")]
    first = [c for c in calls if c.kernel != "combine_experts"][2]
    assert first.kernel == kernel
    assert first.outputs[0].shape[0] == "2*R"


def test_each_expert_begins_with_a_block_of_its_own() -> None:
    weights = {w.tensors[0].name: w for w in lowered("fp32").weights}
    packed = weights["0.gate_up.experts"].tensors[0]
    assert packed.shape == (EXPERTS * 2, WIDTH, 64)  # 80 channels are two blocks
    assert weights["0.gate_up.bias.experts"].tensors[0].shape == (EXPERTS * 2 * 64,)
    rows = weights["0.gate_up.experts"].tiles
    assert rows == tuple((expert * 80, (expert + 1) * 80) for expert in range(EXPERTS))


def test_bytes_are_those_of_the_experts_that_rows_choose() -> None:
    kernels = step_costs(lowered("int8", "fp32").program, isa_of(V3).peaks).kernels
    found = next(cost for name, cost in kernels.items() if name.startswith("int_experts"))
    assert list(found.bytes) == [f"T:{CHOSEN}of{EXPERTS}"]
    # int8 values and a float32 scale and bias of each channel, channels in whole blocks
    one = 128 * (WIDTH + 8)
    costs = [step_work(toy_spec((0,)), [rows], [40], 1) for rows in (1, 2, 200)]
    read = [found.bytes_of(work) / one for work in costs]
    assert read == pytest.approx([2, 6 * (1 - (4 / 6) ** 2), 6])
    assert found.ops_of(costs[1]) == 2 * CHOSEN * 2 * WIDTH * 2 * INNER


def test_all_nodes_are_native_on_cpus_and_on_cuda() -> None:
    model, cuda = mixture_model(KINDS), parse_target("cuda:sm_90")
    assert {BACKEND.supports(node, V3) for node in model.graph} == {NATIVE}
    assert {CUDA_BACKEND.supports(node, cuda) for node in model.graph} == {NATIVE}


def _attribute(op_type: str, name: str, value: int | str) -> Callable[[ir.Model], None]:
    def change(model: ir.Model) -> None:
        attribute = ir.AttrString if isinstance(value, str) else ir.AttrInt64
        node_of(model, op_type).attributes[name] = attribute(name, value)

    return change


def _operand(op_type: str, index: int, name: str) -> Callable[[ir.Model], None]:
    def change(model: ir.Model) -> None:
        node_of(model, op_type).replace_input_with(index, model.graph.initializers[name])

    return change


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (_attribute("TopKRouter", "scoring", "relu"), "no router scores by 'relu'"),
        (_attribute("TopKRouter", "top_k", 7), "7 experts cannot be chosen of 6"),
        (_attribute("TopKRouter", "groups", 4), "1 of 4 groups of 6 experts cannot be chosen"),
        (_operand("TopKRouter", 1, "0.down.bias"), r"the bias has shape \[384\], not \[6\]"),
        (_attribute("ExpertMatMul", "num_experts", 7), "480 output channels are not those of 7"),
        (_attribute("ExpertMatMul", "spread", 0), "x has R rows, for 2 experts of each of R"),
        (_operand("ExpertMatMul", 2, "0.down"), "x has 64 columns and the weight 40 rows"),
        (_operand("ExpertMatMul", 3, "0.down.bias"), r"the bias has shape \[384\], not \[480\]"),
        (_operand("ExpertMatMul", 2, "0.down.bias"), "no matmul for a weight FLOAT"),
    ],
)
def test_what_has_no_kernel_is_named(change: Callable[[ir.Model], None], reason: str) -> None:
    model = mixture_model(("fp32",))
    change(model)
    with pytest.raises(UnsupportedError, match=reason):
        lower_model(model, V3, OPTIONS)


def test_experts_that_read_16_bits_are_refused() -> None:
    model = mixture_model(("int8",))
    expert = node_of(model, "QuantizedExpertMatMul")
    read = expert.inputs[0]
    assert read is not None
    quantizer = read.producer()
    assert quantizer is not None
    quantizer.attributes["bits"] = ir.AttrInt64("bits", 16)
    with pytest.raises(UnsupportedError, match="experts read activations of 8 bits"):
        lower_model(model, V3, OPTIONS)
