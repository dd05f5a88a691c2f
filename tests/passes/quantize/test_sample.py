"""Nodes that a pass writes into any model."""

from __future__ import annotations

import pytest

from optc.ir.pipeline.base import Pass
from optc.passes.quantize.cast_weights import CastWeights
from optc.passes.quantize.quantize_static import QuantizeStatic
from optc.passes.quantize.quantize_weights import QuantizeWeights
from optc.passes.quantize.sample import sample_nodes


@pytest.mark.parametrize(
    ("one", "operators"),
    [
        (QuantizeWeights(), {"QuantizeActivation", "QuantizedMatMul", "QuantizedGather"}),
        (QuantizeStatic(dtype="nvfp4"), {"Gather", "BlockFp4MatMul", "MatMul"}),
        (QuantizeStatic(), {"Gather", "QuantizeLinear", "DequantizeLinear", "MatMul"}),
        (CastWeights(), {"Gather", "Cast", "Bf16MatMul"}),
    ],
    ids=["weights", "nvfp4", "static", "cast"],
)
def test_the_samples_are_what_the_pass_writes(one: Pass, operators: set[str]) -> None:
    assert {node.op_type for node in sample_nodes(one)} == operators
    assert [node.op_type for node in one.samples()] == [n.op_type for n in sample_nodes(one)]


def test_options_show_in_the_samples() -> None:
    affine = QuantizeWeights(bits=4, group_size=32, symmetric=False, head=False)
    (matmul,) = (node for node in affine.samples() if node.op_type == "QuantizedMatMul")
    assert matmul.attributes.get_int("bits") == 4
    assert matmul.inputs[4] is not None  # zero points


def test_layers_that_are_named_show_in_the_samples() -> None:
    """Whatever the names: a sample's layers have others."""
    some = QuantizeWeights(activation_bits=16, activation_layers=("*.down_proj.weight",))
    found = [node for node in some.samples() if node.op_type == "QuantizeActivation"]
    assert found
    assert {node.attributes.get_int("bits", 8) for node in found} == {16}
