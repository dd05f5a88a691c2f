"""Caches of the baseline's attentions: what they are fed, and what the copies compute."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir
import pytest

from optc.errors import UnsupportedError
from optc.proof.reference.cached_attention import MASKED, Cache, MixerCopier
from optc.proof.reference.submodel import extract, open_session, run_session
from tests.support import oracle
from tests.support.ir_text import f32, model_of

SINKS, SLOPES = np.array([0.5, 3.0], np.float32), np.array([0.5, 0.125], np.float32)
PLAIN = Cache(("pk", "pv"), ("nk", "nv"), 2, (8, 4), "", 0)
WINDOWED = Cache(("pk", "pv"), ("nk", "nv"), 2, (8, 4), "mask", 3)


def test_a_new_sequence_has_an_empty_past() -> None:
    assert {name: array.shape for name, array in PLAIN.empty().items()} == {
        "pk": (1, 2, 0, 8),
        "pv": (1, 2, 0, 4),
    }


def test_a_window_is_a_mask() -> None:
    assert PLAIN.masks(2, 3) == {}
    (mask,) = WINDOWED.masks(2, 3).values()
    np.testing.assert_array_equal(mask, [[0, 1, 1, 1, 0], [0, 0, 1, 1, 1]])
    assert mask.dtype == np.bool_


SUNK = Cache(("pk", "pv"), ("nk", "nv"), 2, (8, 4), "mask", 0, 2, (5.0, 6.0), (1.0, 0.5))


def test_a_sink_is_a_token_before_all_others() -> None:
    assert [array.shape for array in SUNK.empty().values()] == [(1, 2, 1, 8), (1, 2, 1, 4)]
    (mask,) = SUNK.masks(2, 3).values()  # a past of the sink and two tokens
    hidden = MASKED
    np.testing.assert_array_equal(
        mask[0],
        np.array(
            [
                [[5, hidden, hidden, 0, hidden], [5, hidden, hidden, -1, 0]],
                [[6, hidden, hidden, 0, hidden], [6, hidden, hidden, -0.5, 0]],
            ],
            np.float32,
        ),
    )


def test_operands_of_heads_must_be_constants() -> None:
    model = model_of(
        "g (float[B,S,16] q, float[B,S,16] k, float[B,S,8] v, float[2] s) => (float[B,S,8] y)",
        """y = optc.Attention <num_heads: int = 2, kv_num_heads: int = 2, scale: float = 0.4,
            softcap: float = 0.0, window: int = 0> (q, k, v, s)""",
    )
    with pytest.raises(UnsupportedError, match="the operand sinks is not constant"):
        extract(model, model.graph, model.graph.inputs, model.graph.outputs, copier=MixerCopier())


def attention(window: int, known: bool = True, chunk: int = 0, more: str = "") -> ir.Model:
    signature = "g (float[B,S,16] q, float[B,S,16] k, float[B,S,8] v) => (float[B,S,8] y)"
    if not known:
        signature = signature.replace("16] k", "N] k")
    node = f"""y = optc.Attention <num_heads: int = 2, kv_num_heads: int = 2,
        scale: float = 0.4, softcap: float = 2.0, window: int = {window}, chunk: int = {chunk}>
        (q, k, v{more})"""
    vectors = {"sinks": SINKS, "slopes": SLOPES}
    return model_of(signature, node, {k: v for k, v in vectors.items() if k in more})


@pytest.mark.parametrize(
    ("window", "chunk", "more"),
    [(0, 0, ""), (4, 0, ""), (0, 0, ", sinks"), (4, 0, ", , slopes"), (0, 3, ", sinks, slopes")],
)
def test_rows_after_a_past_see_it(window: int, chunk: int, more: str) -> None:
    model, copier = attention(window, chunk=chunk, more=more), MixerCopier()
    part = extract(model, model.graph, model.graph.inputs, model.graph.outputs, copier=copier)
    part.model.graph.inputs.extend(copier.inputs)
    part.model.graph.outputs.extend(copier.outputs)
    (cache,) = copier.caches
    assert (cache.heads, cache.dims, cache.window) == (2, (8, 4), window)
    session = open_session(part.model, 1)
    q, k, v = f32(1, 9, 16), f32(1, 9, 16, seed=1), f32(1, 9, 8)
    past, found = cache.empty(), []
    for start, stop in ((0, 5), (5, 6), (6, 9)):
        rows = {
            n: np.ascontiguousarray(a[:, start:stop]) for n, a in zip("qkv", (q, k, v), strict=True)
        }
        length = past[cache.past[0]].shape[2]
        y, *present = run_session(session, {**rows, **past, **cache.masks(stop - start, length)})
        past = dict(zip(cache.past, present, strict=True))
        found.append(y[0])
    want = oracle.attention(
        *(q[0], k[0], v[0], 2, 2, 0.4, 2.0, window),
        chunk=chunk,
        sinks=SINKS if "sinks" in more else None,
        slopes=SLOPES if "slopes" in more else None,
    )
    np.testing.assert_allclose(np.concatenate(found), want, rtol=1e-4, atol=1e-5)


def test_keys_of_unknown_width_are_refused() -> None:
    model = attention(0, known=False)
    with pytest.raises(UnsupportedError, match="the width of input 1 is not known"):
        extract(model, model.graph, model.graph.inputs, model.graph.outputs, copier=MixerCopier())


@pytest.mark.parametrize("bias", [False, True])
def test_convolutions_are_given_the_rows_before(bias: bool) -> None:
    weights = {"w": f32(6, 4), **({"b": f32(6, seed=2)} if bias else {})}
    model = model_of(
        "g (float[B,S,6] x) => (float[B,S,6] y)",
        f"y = optc.CausalConv <channels: int = 6, kernel: int = 4> (x, w{', b' if bias else ''})",
        weights,
    )
    copier = MixerCopier()
    part = extract(model, model.graph, model.graph.inputs, model.graph.outputs, copier=copier)
    copier.finish(part.model)
    (cache,) = copier.caches
    session = open_session(part.model, 1)
    x, past, found = f32(1, 9, 6, seed=1), cache.empty(), []
    for start, stop in ((0, 5), (5, 6), (6, 9)):
        rows = {"x": np.ascontiguousarray(x[:, start:stop])}
        y, *present = run_session(session, {**rows, **past, **cache.masks(stop - start, 0)})
        past = dict(zip(cache.past, present, strict=True))
        found.append(y[0])
    want = oracle.causal_conv(x[0], weights["w"], weights.get("b"))
    np.testing.assert_allclose(np.concatenate(found), want, rtol=1e-5, atol=1e-5)
