"""Convolutions along the tokens become calls of their kernel, or are refused before."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx_ir as ir
import pytest

from optc.backends.tvm.kernels.kv.causal_conv import CausalConv
from optc.backends.tvm.lowering.lower_convolution import HANDLERS
from optc.backends.tvm.lowering.walk import Lowering, Refused, check_node
from optc.backends.tvm.program import Tensor
from optc.runtime.executable.executable import LayerKV

STEP = ("k_pool", "v_pool", "slot_mapping", "query_starts", "kv_lengths", "block_tables")


def node_of(**attributes: Any) -> ir.Node:
    given = {"channels": 6, "kernel": 3, "group": 1, "layer": 0, **attributes}
    weight = ir.tensor(np.ones((6, 3), np.float32), name="w")
    inputs = [ir.Value(name="x"), ir.Value(name="w", const_value=weight), None]
    inputs += [ir.Value(name=name) for name in STEP]
    return ir.node(
        "PagedCausalConv", inputs, attributes=given, domain="optc", num_outputs=3, name="n"
    )


def lower(node: ir.Node, layer: LayerKV, width: int = 6) -> Lowering:
    lowering = Lowering(2, [layer])
    x = node.inputs[0]
    assert x is not None
    lowering.tensors[x] = Tensor("x", "float32", ("T", width))
    HANDLERS[node.domain, node.op_type].lower(lowering, node)
    return lowering


def test_the_call_has_the_kernels_arguments() -> None:
    (call,) = lower(node_of(), LayerKV(1, 1, 8, 8, "float32")).calls
    assert CausalConv(**call.config) == CausalConv(6, 3, 8, False, 1, 2)
    assert call.inputs == ("x", "n.taps", *STEP[2:], "block_size")
    assert call.updated == ("k_pool.0", "v_pool.0")


@pytest.mark.parametrize("sizes", [{"channels": 5}, {"channels": 0}, {"kernel": 1}])
def test_sizes_that_have_no_halves_or_no_rows_are_refused(sizes: dict[str, int]) -> None:
    assert "has no halves or no rows" in check_node(node_of(**sizes), HANDLERS)
    assert not check_node(node_of(), HANDLERS)


@pytest.mark.parametrize(
    ("layer", "width", "reason"),
    [
        (LayerKV(0, 1, 8, 8, "float32"), 6, "has not the pools"),
        (LayerKV(1, 2, 8, 8, "float32"), 6, "has not the pools"),
        (LayerKV(1, 1, 8, 16, "float32"), 6, "has not the pools"),
        (LayerKV(1, 1, 8, 8, "bfloat16"), 6, "has not the pools"),
        (LayerKV(1, 1, 8, 8, "float32"), 8, "6 channels of rows"),
    ],
)
def test_other_rows_and_pools_are_refused(layer: LayerKV, width: int, reason: str) -> None:
    with pytest.raises(Refused, match=reason):
        lower(node_of(), layer, width)
