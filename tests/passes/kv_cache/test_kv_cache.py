"""`kv-cache`: the ragged step equals the dense model, however it is driven."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import onnx_ir as ir
import pytest

from optc.errors import UnsupportedError
from optc.ir.forms.ragged import RaggedStep
from optc.passes.kv_cache.kv_cache import KVCache
from optc.runtime.executable.executable import KVGroup, LayerKV
from tests.passes.checked import checked_run
from tests.support.families import FAMILIES, model_after
from tests.support.ir_text import expected, f32, model_of, nodes_text
from tests.support.layers import recurrence
from tests.support.models import Dense, dense_model
from tests.support.ragged import RaggedDriver, run_dense
from tests.support.trees import path_to, random_parents

SIGNATURE = "g (int64[B,S] input_ids, int64[B,S] position_ids) => (float[B,S,10] logits)"


def test_text() -> None:
    nodes = """
        h = Gather (table, input_ids)
        c = Cast <to: int = 1> (position_ids)
        p = Unsqueeze (c, two)
        a = Mul (p, inv)
        cos = Cos (a)
        sin = Sin (a)
        q, k, v = Split <axis: int = 2> (h, sizes)
        r = RotaryEmbedding <num_heads: int = 2> (q, cos, sin)
        o = optc.Attention <num_heads: int = 2, kv_num_heads: int = 1, scale: float = 0.5,
                            softcap: float = 0.0, window: int = 3> (r, k, v)
        s = Add (h, o)
        n = RMSNormalization <axis: int = 2> (s, scale)
        logits = MatMul (n, head)"""
    weights = {
        "table": f32(10, 8),
        "two": np.array([2]),
        "inv": f32(1, 1, 2),
        "sizes": np.array([8, 4, 4]),
        "scale": f32(8),
        "head": f32(8, 10),
    }
    model = model_of(SIGNATURE, nodes, weights)
    model.graph[8].name = "attn"
    assert checked_run(KVCache(), model).details == {"window 3": 1}
    assert nodes_text(model) == expected(
        """
        h = Gather (table, tokens)
        c = Cast <to = 1> (positions)
        p = Unsqueeze (c, last_axis)
        a = Mul (p, inv.row)
        cos = Cos (a)
        sin = Sin (a)
        q, k, v = Split <axis = -1> (h, sizes)
        r = optc.RotaryEmbedding <num_heads = 2, rotary_embedding_dim = 4, interleaved = 0> \
(q, cos, sin)
        o, k_pool.0.out, v_pool.0.out = optc.PagedAttention <num_heads = 2, kv_num_heads = 1, \
scale = 0.5, softcap = 0, window = 3, group = 0, layer = 0, kv_dtype: string = float32, \
query_bits = 0> \
(r, k, v, k_pool.0, v_pool.0, slot_mapping, query_starts, kv_lengths, block_tables)
        h.wanted = Gather <axis = 0> (h, logit_rows)
        o.wanted = Gather <axis = 0> (o, logit_rows)
        s = Add (h.wanted, o.wanted)
        n = RMSNormalization <axis = -1> (s, scale)
        logits = MatMul (n, head)"""
    )


def test_a_chunk_is_in_the_group_of_the_window_of_as_many_tokens() -> None:
    model = dense_model(Dense(windows=(0, 8, 0, 5), chunks=(0, 0, 8, 20)))
    report = checked_run(KVCache(), model)
    groups = RaggedStep.of(model).kv.groups
    assert [(group.window, group.layers) for group in groups] == [(0, (0,)), (5, (3,)), (8, (1, 2))]
    assert report.details == {
        "full attention": 1,
        "window 8": 1,
        "chunk 8": 1,
        "window 5, chunk 20": 1,
    }


def test_the_last_layer_works_on_wanted_rows_behind_its_attention() -> None:
    model = dense_model(Dense(windows=(0, 0)))
    checked_run(KVCache(), model)
    attentions = [n for n in model.graph if n.op_type == "PagedAttention"]
    rows: dict[str, set[str]] = {"before": set(), "behind": set()}
    where = "before"
    for node in model.graph:
        shape = node.outputs[0].shape
        if node.op_type == "MatMul" and shape is not None:
            rows[where].add(str(shape[0]))
        if node is attentions[-1]:
            where = "behind"
    assert rows == {"before": {"T"}, "behind": {"R"}}
    rows_input = next(v for v in model.graph.inputs if v.name == "logit_rows")
    wanted = [node.inputs[0] for node in rows_input.consumers()]
    assert len(wanted) == 2
    assert attentions[-1].outputs[0] in wanted


def test_inputs_outputs_and_metadata() -> None:
    model = dense_model(Dense(windows=(20, 0, 5, 0)))
    report = checked_run(KVCache(), model)
    assert report.details == {"full attention": 2, "window 5": 1, "window 20": 1}
    described = [
        f"{v.name} {v.dtype.name if v.dtype else ''} {[str(d) for d in v.shape or ()]}"
        for v in model.graph.inputs
    ]
    assert described[:8] == [
        "tokens INT32 ['T']",
        "positions INT32 ['T']",
        "slot_mapping INT32 ['G', 'T']",
        "query_starts INT32 ['B+1']",
        "kv_lengths INT32 ['G', 'B']",
        "block_tables INT32 ['G', 'B', 'P']",
        "logit_rows INT32 ['R']",
        "k_pool.0 FLOAT ['blocks_2', '2', 'block_size', '8']",
    ]
    outputs = [v.name for v in model.graph.outputs]
    assert outputs[:3] == ["logits", "k_pool.0.out", "v_pool.0.out"]
    assert len(outputs) == 9
    kv = RaggedStep.of(model).kv
    assert kv.groups == (KVGroup(0, (1, 3)), KVGroup(5, (2,)), KVGroup(20, (0,)))
    assert kv.layers[2] == LayerKV(1, 2, 8, 8, "float32")
    shapes = {v.name: [str(d) for d in v.shape or ()] for n in model.graph for v in n.outputs}
    assert shapes["logits"] == ["R", "61"]
    assert shapes["gather_out"] == ["T", "32"]


@pytest.mark.parametrize("dtype", ["bfloat16", "float16", "int8"])
def test_kv_type_is_in_the_nodes_and_the_metadata(dtype: str) -> None:
    model = dense_model(Dense(windows=(20, 0)))
    report = KVCache(dtype=dtype).run(model)
    assert report.facts["dtype"] == dtype
    assert [layer.dtype for layer in RaggedStep.of(model).kv.layers] == [dtype, dtype]
    paged = [n for n in model.graph if n.op_type == "PagedAttention"]
    assert [n.attributes.get_string("kv_dtype", "") for n in paged] == [dtype, dtype]


@pytest.mark.parametrize(("dtype", "bits"), [("int8", 8), ("bfloat16", 0)])
def test_queries_are_rounded_over_int8_pools_only(dtype: str, bits: int) -> None:
    model = dense_model(Dense(windows=(20, 0)))
    KVCache(dtype=dtype, query_bits=8).run(model)
    paged = [n for n in model.graph if n.op_type == "PagedAttention"]
    assert [n.attributes.get_int("query_bits", -1) for n in paged] == [bits, bits]


@pytest.mark.parametrize(
    ("dtype", "error"), [("bfloat16", 0.02), ("float16", 2e-3), ("int8", 0.05), ("int4", 0.3)]
)
def test_narrow_pools_change_the_logits_a_little(dtype: str, error: float) -> None:
    """And however the step is driven, each row reads the same values back."""
    shape = Dense(windows=(0, 5), head_dim=32)
    tokens = list(range(1, 21))
    exact = run_dense(dense_model(shape), tokens)
    narrow = dense_model(shape)
    KVCache(dtype=dtype).run(narrow)
    whole = RaggedDriver(narrow).step({0: tokens})
    assert 1e-5 < np.abs(whole - exact).max() / np.abs(exact).max() < error
    driver = RaggedDriver(narrow)
    parts = [driver.step({0: tokens[start : start + 7]}) for start in range(0, 20, 7)]
    np.testing.assert_allclose(np.concatenate(parts), whole, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("block_size", [16, 32])
def test_chunks_and_batches_equal_the_dense_model(family: str, block_size: int) -> None:
    shape = FAMILIES[family]
    rng = np.random.default_rng(3)
    a, b, c = (rng.integers(0, shape.vocab, n).tolist() for n in (40, 25, 3))
    model = dense_model(shape)
    want = {i: run_dense(model, tokens) for i, tokens in enumerate((a, b, c))}
    checked_run(KVCache(), model)
    driver = RaggedDriver(model, block_size=block_size, padding=3)
    got: dict[int, list[np.ndarray]] = {0: [], 1: [], 2: []}  # type: ignore[type-arg]
    steps = [
        {0: a[:20]},
        {0: a[20:21], 1: b[:18]},
        {1: b[18:], 2: c, 0: a[21:39]},
        {0: a[39:]},
    ]
    for rows in steps:
        logits = driver.step(rows)
        for s, tokens in rows.items():
            got[s].append(logits[: len(tokens)])
            logits = logits[len(tokens) :]
    for s, parts in got.items():
        np.testing.assert_allclose(np.concatenate(parts), want[s], rtol=1e-4, atol=2e-5)


def test_history_and_window_matter() -> None:
    """The comparison above could not pass by ignoring the cache or the window."""
    tokens = list(range(30))
    plain = run_dense(dense_model(Dense()), tokens)
    windowed = run_dense(dense_model(Dense(windows=(5, 5))), tokens)
    shifted = run_dense(dense_model(Dense()), [1, *tokens[1:]])
    np.testing.assert_allclose(plain[:5], windowed[:5], rtol=1e-5, atol=1e-6)
    assert np.abs(plain[-1] - windowed[-1]).max() > 0.01
    assert np.abs(plain[-1] - shifted[-1]).max() > 0.01


def test_only_wanted_rows_have_logits() -> None:
    model = dense_model(Dense())
    tokens = list(range(20))
    want = run_dense(model, tokens)
    checked_run(KVCache(), model)
    logits = RaggedDriver(model).step({0: tokens}, wanted=[19, 3])
    assert logits.shape == (2, 61)
    np.testing.assert_allclose(logits, want[[19, 3]], rtol=1e-4, atol=2e-5)


def test_integer_arithmetic_on_positions_keeps_int64() -> None:
    nodes = """
        h0 = Gather (table, input_ids)
        p = Add (position_ids, two)
        h1 = Gather (places, p)
        h = Add (h0, h1)
        o = optc.Attention <num_heads: int = 2, kv_num_heads: int = 2, scale: float = 0.5,
                            softcap: float = 0.0, window: int = 0> (h, h, h)
        n = LayerNormalization (o, scale)
        logits = MatMul (n, head)"""
    weights = {
        "table": f32(10, 8),
        "places": f32(30, 8),
        "two": np.array([2]),
        "scale": f32(8),
        "head": f32(8, 10),
    }
    model = model_of(SIGNATURE, nodes, weights)
    for value in (v for node in model.graph for v in node.outputs if v.name == "h"):
        value.shape = ir.Shape(["B", "S", 8])
    tokens = [1, 5, 3]
    want = run_dense(model, tokens)
    checked_run(KVCache(), model)
    assert "positions.wide = Cast <to = 7> (positions)" in nodes_text(model)
    np.testing.assert_allclose(RaggedDriver(model).step({0: tokens}), want, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("family", ["llama", "gemma2"])
def test_a_tree_equals_the_dense_model_along_each_path(family: str) -> None:
    shape = FAMILIES[family]
    rng = np.random.default_rng(3)
    known, drafts = rng.integers(0, shape.vocab, 21).tolist(), rng.integers(0, shape.vocab, 12)
    other = rng.integers(0, shape.vocab, 5).tolist()
    dense = dense_model(shape)
    model = dense_model(shape)
    one = KVCache(tree=True)
    one.run(model)
    one.ensures(model)
    driver = RaggedDriver(model, padding=2)
    driver.step({0: known}, parents=random_parents([21], [21], 0))
    parents = random_parents([5, 12], [5, 1], 4)
    logits = driver.step({1: other, 0: drafts.tolist()}, parents=parents)
    np.testing.assert_allclose(logits[:5], run_dense(dense, other), rtol=1e-4, atol=2e-5)
    for row in range(5, 17):
        path = [int(drafts[r - 5]) for r in path_to(parents, row)]
        want = run_dense(dense, known + path)[-1]
        np.testing.assert_allclose(logits[row], want, rtol=1e-4, atol=2e-5)


def test_the_tree_is_an_input_where_it_is_asked_for() -> None:
    for tree in (False, True):
        model = dense_model(Dense())
        KVCache(tree=tree).run(model)
        assert ("tree_parent" in {value.name for value in model.graph.inputs}) is tree
        attention = next(n for n in model.graph if n.op_type == "PagedAttention")
        assert len(attention.inputs) == 9 + tree


def test_what_attention_gives_has_a_row_a_token_and_all_heads() -> None:
    model = dense_model(Dense())
    KVCache().run(model)
    shapes = [n.outputs[0].shape for n in model.graph if n.op_type == "PagedAttention"]
    shape = Dense()
    assert shapes == [ir.Shape(["T", shape.heads * shape.head_dim])] * len(shapes)
    assert shapes


def test_dense_attention_that_is_left_is_an_internal_error() -> None:
    model = dense_model(Dense())
    with pytest.raises(RuntimeError, match="kv-cache left a dense attention"):
        KVCache().ensures(model)
    KVCache().run(model)
    KVCache().ensures(model)


@pytest.mark.parametrize(("kernel", "width"), [(2, 8), (5, 8), (40, 24)])
def test_rows_of_convolutions_are_states_of_blocks(kernel: int, width: int) -> None:
    """K - 1 rows of 16 channels in each pool, over 32 slots of a multiple of 8."""
    shape = Dense(windows=(0, 5), convolutions=(kernel, 0))
    kv = RaggedStep.read(model_after("kv-cache", shape)).kv
    assert kv.groups == (KVGroup(5, (0,)), KVGroup(2, (1,), 32))
    assert kv.layers[1] == LayerKV(1, 1, width, width, "float32")


def test_convolutions_keep_float32_rows_and_follow_no_trees() -> None:
    shape = FAMILIES["short convolutions"]
    kv = RaggedStep.read(model_after("kv-cache{dtype=int8}", shape)).kv
    assert [layer.dtype for layer in kv.layers] == ["int8", "float32", "float32"]
    with pytest.raises(UnsupportedError, match="cannot follow a tree of rows"):
        model_after("kv-cache{tree=true}", shape)
    with pytest.raises(UnsupportedError, match="has 33 channels, an odd number"):
        model_after("kv-cache", Dense(hidden=33, convolutions=(3, 0)))


def test_states_are_a_group_behind_those_of_windows() -> None:
    shape = FAMILIES["recurrences"]
    kv = RaggedStep.read(model_after("kv-cache{dtype=int8}", shape)).kv
    assert kv.groups == (KVGroup(0, (0,)), KVGroup(2, (1, 2, 3), 16))
    assert kv.layers[1].group == 1
    assert kv.layers[2:] == (LayerKV(1, 4, 8, 8, "float32"),) * 2
    with pytest.raises(UnsupportedError, match="a recurrence cannot follow a tree of rows"):
        model_after("kv-cache{tree=true}", replace(shape, recurrences=("plain", "", "")))


def test_states_of_odd_sizes_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recurrence, "KEY", 10)
    with pytest.raises(UnsupportedError, match="a state of 10 by 16 has no place in a block"):
        model_after("kv-cache", Dense(windows=(0, 0), recurrences=("plain", "")))


def test_a_model_of_recurrences_alone_needs_no_attention() -> None:
    model = model_after("kv-cache", Dense(windows=(0,), recurrences=("plain",), rotary_dim=0))
    assert RaggedStep.read(model).kv.groups == (KVGroup(2, (0,), 16),)
