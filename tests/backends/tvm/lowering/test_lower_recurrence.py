"""Linear attention becomes a call of its kernel, or is refused before one is compiled."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx_ir as ir
import pytest

from optc.backends.tvm.kernels.kv.linear_attention import LinearAttention
from optc.backends.tvm.lowering.lower_recurrence import HANDLERS
from optc.backends.tvm.lowering.walk import Lowering, Refused, check_node
from optc.backends.tvm.program import Tensor
from optc.backends.tvm_cuda.limits import refusal
from optc.runtime.executable.executable import LayerKV

SIZES = {"num_heads": 4, "key_heads": 2, "key_dim": 32, "value_dim": 24}
WIDTHS = {"q": 64, "k": 64, "v": 96, "decay": 4, "beta": 4}
STEP = ("k_pool", "v_pool", "slot_mapping", "query_starts", "kv_lengths", "block_tables")


def node_of(*, beta: bool = True, rates: ir.Tensor | None = None, **attributes: Any) -> ir.Node:
    given = {**SIZES, "scale": 0.5, "delta": 1, "group": 1, "layer": 0, **attributes}
    inputs = [ir.Value(name=name) if beta or name != "beta" else None for name in WIDTHS]
    inputs.append(None if rates is None else ir.Value(name="rates", const_value=rates))
    inputs += [ir.Value(name=name) for name in STEP]
    return ir.node(
        "PagedLinearAttention", inputs, attributes=given, domain="optc", num_outputs=3, name="n"
    )


def lower(node: ir.Node, layer: LayerKV, widths: dict[str, int]) -> Lowering:
    lowering = Lowering(2, [layer])
    for value, width in zip(node.inputs, widths.values(), strict=False):
        if value is not None:
            lowering.tensors[value] = Tensor(str(value.name), "float32", ("T", width))
    HANDLERS[node.domain, node.op_type].lower(lowering, node)
    return lowering


def test_the_call_has_the_kernels_arguments() -> None:
    node = node_of()
    lowering = lower(node, LayerKV(1, 4, 24, 24, "float32"), WIDTHS)
    (call,) = lowering.calls
    assert LinearAttention(**call.config) == LinearAttention(4, 2, 32, 24, 0.5, True, 1, 2)
    assert call.inputs == (*WIDTHS, *STEP[2:], "block_size")
    assert call.updated == ("k_pool.0", "v_pool.0")
    assert lowering.tensors[node.outputs[0]].shape == ("T", 96)


def test_decays_of_keys_are_as_many() -> None:
    layer, widths = LayerKV(1, 4, 24, 24, "float32"), {**WIDTHS, "decay": 128}
    (call,) = lower(node_of(decays=32), layer, widths).calls
    config = LinearAttention(**call.config)
    assert (config.decays, config.rates, config.beta) == (32, False, True)
    with pytest.raises(Refused, match=r"\['T', 128\] are expected"):
        lower(node_of(decays=32), layer, WIDTHS)


def test_a_scan_has_rates_and_no_beta() -> None:
    layer, widths = LayerKV(1, 4, 24, 24, "float32"), {**WIDTHS, "decay": 96}
    node = node_of(beta=False, rates=ir.tensor(np.ones((32, 96), np.float32)), delta=0)
    (call,) = lower(node, layer, widths).calls
    config = LinearAttention(**call.config)
    assert (config.decays, config.rates, config.beta) == (1, True, False)
    assert call.inputs == ("q", "k", "v", "decay", "rates.rates", *STEP[2:], "block_size")
    other = node_of(beta=False, rates=ir.tensor(np.ones((24, 96), np.float32)), delta=0)
    with pytest.raises(Refused, match=r"\[32, 96\] are expected"):
        lower(other, layer, widths)


@pytest.mark.parametrize(
    ("sizes", "reason"),
    [
        ({"decays": 4}, "linear attention with 4 decays of a head and these rules"),
        ({"rates": ir.tensor(np.ones(1, np.float32))}, "linear attention with 1 decays"),
        ({"key_heads": 3}, "4 heads of linear attention are not a multiple of 3 key heads"),
        ({"key_heads": 0}, "4 heads of linear attention are not a multiple of 0 key heads"),
        ({"key_dim": 24}, "states of 24 x 24 have no place in a block"),
        ({"key_dim": 1, "value_dim": 256}, "states of 1 x 256 have no place in a block"),
        ({}, ""),
    ],
)
def test_sizes_that_the_kernel_does_not_take_are_refused(
    sizes: dict[str, Any], reason: str
) -> None:
    assert check_node(node_of(**sizes), HANDLERS).startswith(reason)
    assert bool(reason) == bool(check_node(node_of(**sizes), HANDLERS))


@pytest.mark.parametrize(
    ("layer", "width", "reason"),
    [
        (LayerKV(1, 4, 16, 16, "float32"), 96, "has not the pools"),
        (LayerKV(0, 4, 24, 24, "float32"), 96, "has not the pools"),
        (LayerKV(1, 4, 24, 24, "float32"), 64, r"\['T', 96\] are expected"),
    ],
)
def test_other_rows_and_pools_are_refused(layer: LayerKV, width: int, reason: str) -> None:
    with pytest.raises(Refused, match=reason):
        lower(node_of(), layer, {**WIDTHS, "v": width})


def test_cuda_has_no_kernel() -> None:
    assert refusal(node_of()) == "recurrences have no CUDA kernels"
