"""The check of heads, keys and values, and shapes: graphs that are broken in one place."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import onnx_ir as ir
import pytest

from optc.ir.linear import find_linears
from optc.passes.prune.structured.check import check_structure
from optc.passes.prune.structured.cut import cut_columns, cut_rows, set_weight
from tests.support.families import FAMILIES
from tests.support.models import dense_model


@pytest.mark.parametrize("family", FAMILIES)
def test_whole_models_belong_together(family: str) -> None:
    check_structure(dense_model(FAMILIES[family]))


def node_of(model: ir.Model, op_type: str) -> ir.Node:
    return next(node for node in model.graph if node.op_type == op_type)


def fewer_columns(model: ir.Model) -> None:
    linear = next(one for one in find_linears(model) if one.name == "0.down.weight")
    set_weight(linear.initializer, cut_columns(linear.weight, np.arange(40)))


def fewer_rows(model: ir.Model) -> None:
    linear = next(one for one in find_linears(model) if one.name == "0.up.weight")
    set_weight(linear.initializer, cut_rows(linear.weight, np.arange(40)))


def stated_shape(model: ir.Model) -> None:
    linear = find_linears(model)[0]
    linear.initializer.shape = ir.Shape([3, 3])


def heads_of(count: int, op_type: str, name: str = "num_heads") -> Callable[[ir.Model], None]:
    def change(model: ir.Model) -> None:
        node_of(model, op_type).attributes[name] = ir.AttrInt64(name, count)

    return change


def fewer_sinks(model: ir.Model) -> None:
    sinks = node_of(model, "Attention").inputs[3]
    assert sinks is not None
    sinks.shape = ir.Shape([3])


def width_of(op_type: str, size: int) -> Callable[[ir.Model], None]:
    def change(model: ir.Model) -> None:
        node_of(model, op_type).outputs[0].shape = ir.Shape(["B", "S", size])

    return change


def split_sizes(model: ir.Model) -> None:
    sizes = node_of(model, "Split").inputs[1]
    assert sizes is not None
    sizes.const_value = ir.tensor([32, 16, 8], ir.DataType.INT64)


#: A family, what is broken, and what the check says.
BROKEN: list[tuple[str, Callable[[ir.Model], None], str]] = [
    ("llama", fewer_columns, "its input is 48 wide, its weight takes 40"),
    ("llama", fewer_rows, "its weight gives 40 channels, its result says 48"),
    ("llama", stated_shape, r"its weight is \[32, 32\] and says \[3,\s?3\]"),
    ("llama", heads_of(3, "Attention"), "3 query heads are no groups of 2 KV heads"),
    ("llama", heads_of(0, "Attention", "kv_num_heads"), "no groups of 0 KV heads"),
    (
        "no positions",
        heads_of(6, "Attention"),
        "queries, keys and values 32, 16, 16 wide are not 6 and 2 heads",
    ),
    ("no positions", heads_of(8, "Attention"), "queries have 4 channels a head, keys 8"),
    ("llama", heads_of(2, "RotaryEmbedding"), "rotaryembedding: heads: 2, not 4"),
    ("llama", heads_of(8, "RotaryEmbedding"), "it turns more than the 4 channels of a head"),
    ("llama", heads_of(5, "RotaryEmbedding"), "32 channels are not 5 heads"),
    ("qwen3", heads_of(6, "HeadRMSNorm"), "scale: 8, not 4"),
    ("llama", width_of("Attention", 24), "result: 24, not 32"),
    ("llama", width_of("Sigmoid", 40), "its operands are 40, 48 wide"),
    ("llama", width_of("Gather", 24), "scale: 32, not 24"),
    ("sinks", fewer_sinks, "sinks: 3, not 4"),
    ("phi3", split_sizes, "parts together: 56, not 64"),
]


@pytest.mark.parametrize(("family", "change", "message"), BROKEN)
def test_a_broken_graph_is_an_internal_error(
    family: str, change: Callable[[ir.Model], None], message: str
) -> None:
    model = dense_model(FAMILIES[family])
    change(model)
    with pytest.raises(RuntimeError, match=message):
        check_structure(model)
