"""What a model has, and would have without some weights, beside what passes make of it."""

from __future__ import annotations

import onnx_ir as ir
import pytest

from optc.ir.functions import is_op
from optc.ir.linear import find_linears
from optc.ir.pipeline.base import Pass
from optc.ir.pipeline.pipeline import Pipeline
from optc.passes.kv_cache.kv_cache import KVCache
from optc.passes.prune.structured.sizes import Sizes
from optc.passes.quantize.cast_weights import CastWeights
from optc.passes.quantize.quantize_weights import QuantizeWeights
from optc.proof.roofline.estimate import CONTEXT
from optc.runtime.executable.executable import LayerKV
from tests.support.families import FAMILIES
from tests.support.models import Dense, dense_model

LLAMA = FAMILIES["llama"]
#: Of the tied table, as the head that it is, or of both.
TIED, APART = Dense(tied=True, hidden=64), Dense(hidden=64)


def stored(model: ir.Model, *passes: Pass) -> int:
    """Bytes of the initializers behind passes."""
    Pipeline(passes).run(model)
    values = model.graph.initializers.values()
    return sum(v.const_value.nbytes for v in values if v.const_value is not None)


@pytest.mark.parametrize("shape", [TIED, APART])
@pytest.mark.parametrize(
    "later",
    [
        QuantizeWeights(bits=8),
        QuantizeWeights(bits=4, group_size=32, symmetric=False, group_scales="int"),
        QuantizeWeights(bits=8, head=False, embedding=False),
    ],
)
def test_bytes_are_those_that_passes_store(shape: Dense, later: Pass) -> None:
    model = dense_model(shape)
    amounts = Sizes(model, [later], []).of({})
    wanted = stored(dense_model(shape), later)
    if shape.tied:  # the graph of a float head has the table twice, a file once
        whole = isinstance(later, QuantizeWeights) and not later.head
        wanted -= 4 * shape.vocab * shape.hidden * whole
    assert amounts.weight_bits // 8 == pytest.approx(wanted, rel=0.02)


def test_float_weights_take_four_bytes_or_two() -> None:
    model = dense_model(LLAMA)
    whole = Sizes(model, [], []).of({})
    assert whole.weight_bits == 32 * whole.parameters
    assert Sizes(model, [CastWeights()], []).of({}).weight_bits == 16 * whole.parameters


def test_a_tied_table_counts_once_and_a_step_reads_no_other_table() -> None:
    tied, apart = (Sizes(dense_model(shape), [], []).of({}) for shape in (TIED, APART))
    table = TIED.vocab * TIED.hidden
    assert apart.parameters - tied.parameters == table
    assert apart.read_bits == tied.read_bits == tied.weight_bits
    assert apart.weight_bits - apart.read_bits == 32 * table


def test_what_is_cut_and_gone_counts_no_more() -> None:
    model = dense_model(LLAMA)
    up, down = (
        next(one.initializer for one in find_linears(model) if one.name == f"0.{name}.weight")
        for name in ("up", "down")
    )
    sizes = Sizes(model, [], [up, down])
    before, after = sizes.of({}), sizes.of({up: (40, LLAMA.hidden), down: (0, 0)})
    gone = LLAMA.hidden * (8 + LLAMA.inner)
    assert before.candidates == 2 * LLAMA.inner * LLAMA.hidden
    assert before.candidates - after.candidates == gone
    assert before.parameters - after.parameters == gone
    assert before.read_bits - after.read_bits == 32 * gone


@pytest.mark.parametrize(("later", "dtype"), [([], "float32"), ([KVCache(dtype="int8")], "int8")])
def test_keys_and_values_are_those_of_the_heads_that_stay(later: list[Pass], dtype: str) -> None:
    model = dense_model(LLAMA)
    attentions = [node for node in model.graph if is_op(node, "Attention", domain="optc")]
    sizes = Sizes(model, later, [])
    one = LayerKV(0, 1, LLAMA.head_dim, LLAMA.head_dim, dtype).bytes_per_token
    assert sizes.of({}).kv_bytes == CONTEXT * 4 * one
    assert sizes.of({}, {attentions[0]: 1}).kv_bytes == CONTEXT * 3 * one
    assert sizes.of({}, {attentions[0]: 2}).kv_bytes == CONTEXT * 2 * one
