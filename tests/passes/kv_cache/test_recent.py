"""`kv-cache` with ``recent``: int4 pools, and int8 ones of the latest tokens."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx_ir as ir
import pytest

from optc.errors import InputError
from optc.ir.forms import decoder
from optc.ir.forms.ragged import RaggedStep
from optc.passes.kv_cache.kv_cache import KVCache
from optc.passes.kv_cache.slots import KVSlots
from optc.runtime.executable.executable import KVGroup, LayerKV
from tests.passes.checked import checked_run
from tests.support.families import FUSED, model_after
from tests.support.ir_text import Array, expected, f32, model_of, nodes_text
from tests.support.models import Dense, dense_model
from tests.support.ragged import RaggedDriver, run_dense
from tests.support.slots import SlotDriver
from tests.support.trees import path_to, random_parents

SIGNATURE = "g (int64[B,S] input_ids, int64[B,S] position_ids) => (float[B,S,10] logits)"
SHAPE = Dense(windows=(0, 12, 5), head_dim=32)
RECENT = KVCache(dtype="int4", query_bits=8, recent=6)


def test_text() -> None:
    nodes = """
        h = Gather (table, input_ids)
        o = optc.Attention <num_heads: int = 1, kv_num_heads: int = 1, scale: float = 0.5,
                            softcap: float = 0.0, window: int = 0> (h, h, h)
        logits = MatMul (o, head)"""
    model = model_of(SIGNATURE, nodes, {"table": f32(10, 32), "head": f32(32, 10)})
    decoder.Dense().attach(model)
    model.graph[1].name = "attn"
    for value in (v for node in model.graph for v in node.outputs if v.name == "h"):
        value.shape = ir.Shape(["B", "S", 32])
    checked_run(KVCache(dtype="int4", recent=16), model)
    assert nodes_text(model) == expected(
        """
        h = Gather (table, tokens)
        o, k_pool.0.out, v_pool.0.out, k_pool.1.out, v_pool.1.out = optc.PagedAttention \
<num_heads = 1, kv_num_heads = 1, scale = 0.5, softcap = 0, window = 0, group = 0, layer = 0, \
kv_dtype: string = int4, query_bits = 0, recent = 16, recent_group = 1, recent_layer = 1> \
(h, h, h, k_pool.0, v_pool.0, slot_mapping, query_starts, kv_lengths, block_tables, , , , , \
k_pool.1, v_pool.1)
        o.wanted = Gather <axis = 0> (o, logit_rows)
        logits = MatMul (o.wanted, head)"""
    )


@pytest.mark.parametrize(
    ("options", "types"),
    [
        ({"int8_window": 12}, ["int4", "int8", "int8"]),
        ({"int8_window": 11}, ["int4", "int4", "int8"]),
        ({"int8_window": 4}, ["int4", "int4", "int4"]),
        ({"int8_window": 12, "recent": 6}, ["int4", "int8", "int8", "int8"]),
        ({"int8_window": 12, "dtype": "bfloat16"}, ["bfloat16"] * 3),
    ],
)
def test_layers_with_a_narrow_window_have_int8_pools(
    options: dict[str, Any], types: list[str]
) -> None:
    model = dense_model(SHAPE)
    report = checked_run(KVCache(**{"dtype": "int4", **options}), model)
    assert [layer.dtype for layer in RaggedStep.of(model).kv.layers] == types
    stated = {"int8_window": 12} if types[1] == "int8" else {}
    assert {k: v for k, v in report.facts.items() if k == "int8_window"} == (
        stated or ({} if "dtype" in options else {"int8_window": options["int8_window"]})
    )


def test_a_layer_that_sees_no_more_has_int8_pools_alone() -> None:
    model = dense_model(SHAPE)
    report = checked_run(RECENT, model)
    kv = RaggedStep.of(model).kv
    assert kv.groups == (KVGroup(0, (0,)), KVGroup(5, (2,)), KVGroup(6, (3, 4)), KVGroup(12, (1,)))
    assert [(one.group, one.dtype) for one in kv.layers] == [
        *((0, "int4"), (3, "int4"), (1, "int8")),
        *((2, "int8"), (2, "int8")),
    ]
    assert kv.layers[3] == LayerKV(2, 2, 32, 32, "int8")
    assert [v.name for v in model.graph.outputs][1:] == [
        f"{kind}_pool.{layer}.out" for layer in range(5) for kind in "kv"
    ]
    assert report.facts["recent"] == 6
    assert report.facts["layers"] == 3


def logits_of(options: KVCache, tokens: list[int]) -> Array:
    model = dense_model(SHAPE)
    options.run(model)
    return RaggedDriver(model).step({0: tokens})


def test_logits_are_nearer_to_the_dense_model_however_the_step_is_driven() -> None:
    tokens = list(range(1, 31))
    exact = run_dense(dense_model(SHAPE), tokens)
    narrow = logits_of(KVCache(dtype="int4", query_bits=8), tokens)
    whole = logits_of(RECENT, tokens)
    assert np.square(whole - exact).sum() < 0.5 * np.square(narrow - exact).sum()
    for spec in ("", ",fuse-rotary"):
        model = model_after("kv-cache{dtype=int4,query_bits=8,recent=6}" + spec, SHAPE)
        driver = RaggedDriver(model, padding=2)
        parts = [driver.step({0: tokens[at : at + 7]})[:7] for at in range(0, 30, 7)]
        np.testing.assert_allclose(np.concatenate(parts)[:30], whole, rtol=1e-4, atol=1e-4)


def test_a_tree_reads_the_latest_tokens_of_each_path() -> None:
    rng = np.random.default_rng(3)
    known, drafts = rng.integers(0, SHAPE.vocab, 21).tolist(), rng.integers(0, SHAPE.vocab, 12)
    model = dense_model(SHAPE)
    KVCache(dtype="int4", query_bits=8, recent=6, tree=True).run(model)
    driver = RaggedDriver(model)
    driver.step({0: known}, parents=random_parents([21], [21], 0))
    parents = random_parents([12], [1], 4)
    logits = driver.step({0: drafts.tolist()}, parents=parents)
    for row in range(12):
        path = [int(drafts[r]) for r in path_to(parents, row)]
        want = logits_of(RECENT, known + path)[-1]
        np.testing.assert_allclose(logits[row], want, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("merged", [False, True])
def test_slots_have_no_recent_pools(merged: bool) -> None:
    options = "kv-cache{dtype=int4,query_bits=8,recent=6}"
    spec = FUSED.replace("kv-cache", options) if merged else options
    model = model_after(spec, SHAPE)
    report = checked_run(KVSlots(), model)
    assert report.facts == {"layers": 3, "pools_were": ["int4", "int8"]}
    tokens = list(range(1, 21))
    want = run_dense(dense_model(SHAPE), tokens)
    np.testing.assert_allclose(SlotDriver(model).step({0: tokens})[0], want, rtol=1e-4, atol=2e-5)


def test_pools_of_other_types_go_without() -> None:
    model = dense_model(SHAPE)
    report = checked_run(KVCache(dtype="int8", recent=6), model)
    assert [one.dtype for one in RaggedStep.of(model).kv.layers] == ["int8"] * 3
    assert "recent" not in report.facts


def test_a_negative_number_of_tokens_is_refused() -> None:
    for option in ("recent", "int8_window"):
        with pytest.raises(InputError, match=f"{option}=-1 is negative"):
            KVCache(dtype="int4", **{option: -1})
