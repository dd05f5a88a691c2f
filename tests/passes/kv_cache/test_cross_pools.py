"""`kv-cache` of a decoder that attends to an encoder: pools of a last group, which steps read."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir
import pytest

from optc.errors import InputError, UnsupportedError
from optc.ir.forms.ragged import RaggedStep
from optc.passes.kv_cache.cross_pools import Cross, take_cross
from optc.passes.kv_cache.kv_cache import KVCache
from optc.passes.kv_cache.slots import KVSlots
from optc.runtime.executable.executable import KVGroup, LayerKV
from tests.passes.checked import checked_run
from tests.support.ir_text import expected, f32, model_of, nodes_text
from tests.support.ragged import run

NODES = """
    h = Gather (table, input_ids)
    o = optc.Attention <num_heads: int = 2, kv_num_heads: int = 2, scale: float = 0.5,
                        softcap: float = 0.0, window: int = 0> (h, h, h)
    s = Add (h, o)
    c = optc.CrossAttention <num_heads: int = 2, kv_num_heads: int = 1, scale: float = 0.5>
        (s, cross_0, cross_1)
    r = Add (s, c)
    logits = MatMul (r, head)"""
WEIGHTS = {"table": f32(10, 8), "head": f32(8, 10)}


def decoder(states: str = "7") -> ir.Model:
    signature = (
        "g (int64[B,S] input_ids, int64[B,S] position_ids,"
        f" float[B,{states},4] cross_0, float[B,{states},4] cross_1) => (float[B,S,10] logits)"
    )
    return model_of(signature, NODES, WEIGHTS)


def test_text() -> None:
    model = decoder()
    report = checked_run(KVCache(), model)
    assert report.details == {"full attention": 1, "attention to an encoder": 1}
    assert nodes_text(model) == expected(
        """
        h = Gather (table, tokens)
        o, k_pool.0.out, v_pool.0.out = optc.PagedAttention <num_heads = 2, kv_num_heads = 2, \
scale = 0.5, softcap = 0, window = 0, group = 0, layer = 0, kv_dtype: string = float32, \
query_bits = 0> \
(h, h, h, k_pool.0, v_pool.0, slot_mapping, query_starts, kv_lengths, block_tables)
        s = Add (h, o)
        c = optc.PagedCrossAttention <num_heads = 2, kv_num_heads = 1, scale = 0.5, group = 1, \
layer = 1, kv_dtype: string = float32> \
(s, k_pool.1, v_pool.1, query_starts, kv_lengths, block_tables)
        s.wanted = Gather <axis = 0> (s, logit_rows)
        c.wanted = Gather <axis = 0> (c, logit_rows)
        r = Add (s.wanted, c.wanted)
        logits = MatMul (r, head)"""
    )
    step = RaggedStep.of(model)
    assert step.encoded == 7
    assert step.kv.groups == (KVGroup(0, (0,)), KVGroup(0, (1,)))
    assert step.kv.layers[1] == LayerKV(1, 1, 4, 4, "float32")
    assert [value.name for value in model.graph.outputs] == [
        *("logits", "k_pool.0.out", "v_pool.0.out"),
    ]


def test_numbers() -> None:
    """Two sequences of other lengths and numbers of states, in one step."""
    model, rng = decoder(), np.random.default_rng(0)
    KVCache().run(model)
    rows, states = [4, 2], [7, 5]
    ids = [rng.integers(0, 10, (1, n)) for n in rows]
    cross = [[f32(1, n, 4, seed=n + i) for i in range(2)] for n in states]
    wanted = []
    for one, pair in zip(ids, cross, strict=True):
        places = np.arange(one.shape[1])[None]
        given = {"input_ids": one, "position_ids": places, "cross_0": pair[0], "cross_1": pair[1]}
        wanted.append(run(decoder(f"{pair[0].shape[1]}"), given)[0][0])
    block, tables = 4, np.full((2, 2, 2), -1, np.int32)
    tables[0, :, 0], tables[1] = [1, 0], [[3, 1], [0, 2]]
    pools = [np.zeros((2, 2, block, 4), np.float32) for _ in range(2)]
    encoded = [f32(4, 1, block, 4, seed=9 + i) for i in range(2)]
    for b, pair in enumerate(cross):
        for pool, given_states in zip(encoded, pair, strict=True):
            for at, state in enumerate(given_states[0]):
                pool[tables[1, b, at // block], 0, at % block] = state
    slots = np.full((2, 6), -1, np.int32)
    slots[0] = [4, 5, 6, 7, 0, 1]
    given = {
        "tokens": np.concatenate(ids, axis=1)[0].astype(np.int32),
        "positions": np.array([0, 1, 2, 3, 0, 1], np.int32),
        "slot_mapping": slots,
        "query_starts": np.array([0, 4, 6], np.int32),
        "kv_lengths": np.array([rows, states], np.int32),
        "block_tables": tables,
        "logit_rows": np.arange(6, dtype=np.int32),
        "k_pool.0": pools[0],
        "v_pool.0": pools[1],
        "k_pool.1": encoded[0],
        "v_pool.1": encoded[1],
    }
    np.testing.assert_allclose(run(model, given)[0], np.concatenate(wanted), atol=1e-5)


def test_int4_pools_keep_an_encoders_states_in_int8() -> None:
    wide = NODES.replace("(h, h, h)", "(w, w, w)").replace(
        "h = G", "w = Gather (wide, input_ids)\nh = G"
    )
    wide = wide.replace("s = Add (h, o)", "p = MatMul (o, down)\ns = Add (h, p)")
    signature = (
        "g (int64[B,S] input_ids, int64[B,S] position_ids, float[B,7,4] cross_0,"
        " float[B,7,4] cross_1) => (float[B,S,10] logits)"
    )
    weights = {**WEIGHTS, "wide": f32(10, 64), "down": f32(64, 8)}
    model = model_of(signature, wide, weights)
    KVCache(dtype="int4").run(model)
    assert [one.dtype for one in RaggedStep.of(model).kv.layers] == ["int4", "int8"]


def test_any_number_of_states_is_refused() -> None:
    with pytest.raises(UnsupportedError, match="reads no fixed number of states"):
        KVCache().run(decoder("P"))


def test_slots_have_no_room() -> None:
    model = decoder()
    KVCache().run(model)
    with pytest.raises(
        (InputError, UnsupportedError), match="no place for the states of an encoder"
    ):
        checked_run(KVSlots(), model)


def test_a_decoder_that_attends_to_no_encoder_has_no_states() -> None:
    model = model_of("g (float[S,8] x) => (float[S,10] y)", "y = MatMul (x, head)", WEIGHTS)
    assert take_cross(model.graph, 1, "float32") == Cross((), (), 0)
