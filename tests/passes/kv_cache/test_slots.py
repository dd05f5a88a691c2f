"""`kv-slots`: the slot form equals the ragged step it is made from, and the dense model."""

from __future__ import annotations

import numpy as np
import pytest

from optc.errors import InputError, UnsupportedError
from optc.ir.forms import decoder
from optc.ir.forms.static_kv import StaticKV
from optc.ir.pipeline.pipeline import Pipeline
from optc.passes.kv_cache.kv_cache import KVCache
from optc.passes.kv_cache.slots import KVSlots
from optc.runtime.executable.executable import KVGroup
from tests.passes.checked import checked_run
from tests.support.families import FAMILIES, FUSED, model_after
from tests.support.ir_text import Array, expected, f32, model_of, nodes_text
from tests.support.models import Dense, dense_model
from tests.support.pipelines import pipeline_of
from tests.support.ragged import RaggedDriver, run_dense
from tests.support.slots import SlotDriver


def test_text() -> None:
    """Taken apart again, head norms and rotary on both q and k, one gather of the wanted rows."""
    signature = "g (int64[B,S] input_ids, int64[B,S] position_ids) => (float[B,S,10] logits)"
    nodes = """
        h = Gather (table, input_ids)
        c = Cast <to: int = 1> (position_ids)
        p = Unsqueeze (c, two)
        a = Mul (p, inv)
        cos = Cos (a)
        sin = Sin (a)
        q, k, v = Split <axis: int = 2> (h, sizes)
        qn = optc.HeadRMSNorm <num_heads: int = 2, epsilon: float = 0.5> (q, scale)
        qr = RotaryEmbedding <num_heads: int = 2> (qn, cos, sin)
        kr = RotaryEmbedding <num_heads: int = 1> (k, cos, sin)
        o = optc.Attention <num_heads: int = 2, kv_num_heads: int = 1, scale: float = 0.5,
                            softcap: float = 0.0, window: int = 3> (qr, kr, v)
        logits = MatMul (o, head)"""
    weights = {
        "table": f32(10, 16),
        "two": np.array([2]),
        "inv": f32(1, 1, 2),
        "sizes": np.array([8, 4, 4]),
        "scale": f32(4),
        "head": f32(8, 10),
    }
    model = model_of(signature, nodes, weights)
    decoder.Dense().attach(model)
    model.graph[10].name = "attn"
    pipeline_of("kv-cache{dtype=int8},fuse-rotary").run(model)
    report = checked_run(KVSlots(), model)
    assert report.details == {"taken apart": 1}
    assert report.facts == {"layers": 1, "pools_were": ["int8"]}
    assert nodes_text(model) == expected(
        """
        h = Gather (table, tokens)
        c = Cast <to = 1> (positions)
        p = Unsqueeze (c, last_axis)
        a = Mul (p, inv.row)
        cos = Cos (a)
        sin = Sin (a)
        attn.q, attn.k, attn.v = Split <axis = -1> (h, qkv_sizes)
        attn.q.HeadRMSNorm = optc.HeadRMSNorm <num_heads = 2, epsilon = 0.5> (attn.q, scale)
        attn.q.RotaryEmbedding = RotaryEmbedding <num_heads = 2, rotary_embedding_dim = 4, \
interleaved = 0> (attn.q.HeadRMSNorm, cos, sin)
        attn.k.RotaryEmbedding = RotaryEmbedding <num_heads = 1, rotary_embedding_dim = 4, \
interleaved = 0> (attn.k, cos, sin)
        o, present_k.0, present_v.0 = optc.SlotAttention <num_heads = 2, kv_num_heads = 1, \
scale = 0.5, softcap = 0, window = 3> (attn.q.RotaryEmbedding, attn.k.RotaryEmbedding, attn.v, \
past_k.0, past_v.0, write_indices)
        logit_index.column = Unsqueeze (logit_index, last_axis.2)
        o.wanted = GatherND <batch_dims = 1> (o, logit_index.column)
        logits = MatMul (o.wanted, head)"""
    )


def test_inputs_outputs_and_metadata() -> None:
    model = model_after("kv-cache{dtype=bfloat16}", Dense(windows=(20, 0)))
    checked_run(KVSlots(), model)
    described = [
        f"{v.name} {v.dtype.name if v.dtype else ''} {[str(d) for d in v.shape or ()]}"
        for v in (*model.graph.inputs, *model.graph.outputs)
    ]
    assert described == [
        "tokens INT32 ['B', 'S']",
        "positions INT32 ['B', 'S']",
        "write_indices INT64 ['B']",
        "logit_index INT64 ['B', 'R']",
        "past_k.0 FLOAT ['B', '2', 'Smax', '8']",
        "past_v.0 FLOAT ['B', '2', 'Smax', '8']",
        "past_k.1 FLOAT ['B', '2', 'Smax', '8']",
        "past_v.1 FLOAT ['B', '2', 'Smax', '8']",
        "logits FLOAT ['B', 'R', '61']",
        "present_k.0 FLOAT ['B', '2', 'Smax', '8']",
        "present_v.0 FLOAT ['B', '2', 'Smax', '8']",
        "present_k.1 FLOAT ['B', '2', 'Smax', '8']",
        "present_v.1 FLOAT ['B', '2', 'Smax', '8']",
    ]
    kv = StaticKV.of(model).kv
    assert kv.groups == (KVGroup(0, (0, 1)),)
    assert [(layer.group, layer.dtype) for layer in kv.layers] == [(0, "float32")] * 2
    shapes = {v.name: [str(d) for d in v.shape or ()] for n in model.graph for v in n.outputs}
    assert shapes["gather_out"] == ["B", "S", "32"]


@pytest.mark.parametrize(
    "family", [n for n, one in FAMILIES.items() if len(one.attentions) == one.layers]
)
@pytest.mark.parametrize("spec", ["kv-cache", FUSED])
def test_chunks_and_batches_equal_the_ragged_step_and_the_dense_model(
    family: str, spec: str
) -> None:
    shape = FAMILIES[family]
    rng = np.random.default_rng(3)
    a, b = rng.integers(0, shape.vocab, (2, 40)).tolist()
    ragged = model_after(spec, shape)
    slots = model_after(spec, shape)
    checked_run(KVSlots(), slots)
    plain, driver = RaggedDriver(ragged), SlotDriver(slots)
    got: dict[int, list[Array]] = {0: [], 2: []}
    for rows in ({0: a[:7]}, {2: b[:20]}, {0: a[7:9], 2: b[20:22]}, {2: b[22:23], 0: a[9:10]}):
        logits = driver.step(rows)
        want = plain.step(rows)
        np.testing.assert_allclose(logits.reshape(want.shape), want, rtol=1e-4, atol=2e-5)
        for slot, part in zip(rows, logits, strict=True):
            got[slot].append(part)
    for slot, tokens in ((0, a[:10]), (2, b[:23])):
        want = run_dense(dense_model(shape), tokens)
        np.testing.assert_allclose(np.concatenate(got[slot]), want, rtol=1e-4, atol=2e-5)


@pytest.mark.parametrize("options", ["{bits=8}", "{bits=4,group_size=32,symmetric=false}"])
def test_quantized_models_keep_their_values(options: str) -> None:
    spec = f"{FUSED},quantize-weights{options},fuse-norm-quantize"
    tokens = list(range(12))
    slots = model_after(spec, FAMILIES["llama"])
    checked_run(KVSlots(), slots)
    want = RaggedDriver(model_after(spec, FAMILIES["llama"])).step({0: tokens})
    got = SlotDriver(slots).step({1: tokens})[0]
    np.testing.assert_allclose(got, want, rtol=1e-3, atol=1e-3)


def test_only_wanted_rows_have_logits() -> None:
    model = model_after(FUSED, Dense())
    checked_run(KVSlots(), model)
    tokens = list(range(20))
    want = run_dense(dense_model(Dense()), tokens)
    logits = SlotDriver(model).step({0: tokens}, wanted=[19, 3])
    assert logits.shape == (1, 2, 61)
    np.testing.assert_allclose(logits[0], want[[19, 3]], rtol=1e-4, atol=2e-5)


def test_what_is_no_ragged_step_is_refused() -> None:
    slots = Pipeline((KVSlots(),))
    with pytest.raises(InputError, match="takes the ragged step, and is given the dense form"):
        slots.run(dense_model(Dense()))
    model = model_after("kv-cache", Dense())
    slots.run(model)
    with pytest.raises(InputError, match="takes the ragged step, and is given the static-KV form"):
        slots.run(model)
    tree = dense_model(Dense())
    KVCache(tree=True).run(tree)
    with pytest.raises(UnsupportedError, match="slots have no place for tree_parent") as caught:
        KVSlots().requires(tree)
    assert "without LoRA adapters, Medusa heads and trees" in caught.value.hint


@pytest.mark.parametrize("family", ["short convolutions", "recurrences"])
def test_what_slots_cannot_hold_is_for_tvm(family: str) -> None:
    """Nobody can leave layers out: the hint names none of the options that were not asked for."""
    model = model_after("kv-cache", FAMILIES[family])
    with pytest.raises(UnsupportedError, match=r"slots have no place for (rows|states)") as caught:
        KVSlots().requires(model)
    assert caught.value.hint == "compile it for TVM: --backend tvm"


def test_attention_that_is_left_is_an_internal_error() -> None:
    model = model_after("kv-cache", Dense())
    with pytest.raises(RuntimeError, match="kv-slots left 2 attentions"):
        KVSlots().ensures(model)
    KVSlots().run(model)
    KVSlots().ensures(model)


def test_every_value_of_the_slot_form_has_a_shape() -> None:
    model = model_after("kv-cache", Dense(qk_norm=True))
    KVSlots().run(model)
    without = [v.name for node in model.graph for v in node.outputs if v.shape is None]
    assert without == []


def test_shapes_are_restated_whatever_else_has_none() -> None:
    model = dense_model(Dense())
    pipeline_of("kv-cache").run(model)
    stated = [value for node in model.graph for value in node.outputs if value.shape is not None]
    stated[0].shape = None
    stated[1].shape = None
    KVSlots().run(model)
    shapes = [list(v.shape) for node in model.graph for v in node.outputs if v.shape is not None]
    symbols = {str(shape[0]) for shape in shapes if shape}
    assert "B" in symbols
    assert not symbols & {"T", "R"}


def test_convolutions_are_refused() -> None:
    with pytest.raises(UnsupportedError, match="no place for rows that convolutions read"):
        model_after("kv-cache,kv-slots", FAMILIES["short convolutions"])
