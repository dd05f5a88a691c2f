"""`find-attention` on text: captured and standard attention in, ``optc::Attention`` out."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir
import pytest

from optc.passes.canonicalize.find_attention import FindAttention
from tests.passes.canonicalize.texts import after, exported, unchanged
from tests.support.ir_text import expected, f32

CAPTURED = "<scale: float = 0.5, softcap: float = 5.0, window: int = 8>"
SWAP = "Transpose <perm: ints = [0, 2, 1, 3]>"


def captured(kv_heads: str = "2", value_heads: str = "2") -> ir.Model:
    return exported(
        f"(float[B,4,S,8] q, float[B,{kv_heads},S,8] k, float[B,{value_heads},S,6] v)"
        " => (float[B,S,4,6] y)",
        f"y = optc.Attention {CAPTURED} (q, k, v)",
    )


def standard(options: str, mask: str = "") -> ir.Model:
    return exported(
        "(float[B,4,S,8] q, float[B,2,S,8] k, float[B,2,S,6] v, bool[S,S] m) => (float[B,4,S,6] y)",
        f"y = Attention <{options}> (q, k, v{mask})",
    )


def test_captured_attention() -> None:
    text, report = after(captured(), FindAttention())
    assert text == expected(f"""
        t0 = {SWAP} (q)
        t1 = Reshape (t0, to_0_0_rest)
        t2 = {SWAP} (k)
        t3 = Reshape (t2, to_0_0_rest)
        t4 = {SWAP} (v)
        t5 = Reshape (t4, to_0_0_rest)
        t6 = optc.Attention <num_heads = 4, kv_num_heads = 2, scale = 0.5, softcap = 5,\\
         window = 8> (t1, t3, t5)
        y = Reshape (t6, to_0_0_4_6)
        """)
    assert report.details == {"window 8": 1}


def test_standard_attention_keeps_its_numbers() -> None:
    model = standard("is_causal: int = 1, softcap: float = 2.0")
    found = standard("is_causal: int = 1, softcap: float = 2.0")
    assert FindAttention().run(found).details == {"full": 1}
    node = next(n for n in found.graph if n.domain == "optc")
    attributes = {name: a.value for name, a in node.attributes.items()}
    assert attributes.pop("scale") == pytest.approx(8**-0.5)
    assert attributes == {"num_heads": 4, "kv_num_heads": 2, "softcap": 2.0, "window": 0}
    values = {"q": f32(2, 4, 7, 8), "k": f32(2, 2, 7, 8), "v": f32(2, 2, 7, 6)}
    mask = {"m": np.ones((7, 7), bool)}
    assert unchanged(model, {**values, **mask}, FindAttention()) < 1e-5


def test_standard_attention_over_folded_heads() -> None:
    def model() -> ir.Model:
        return exported(
            "(float[B,S,32] q, float[B,S,16] k, float[B,S,12] v) => (float[B,S,24] y)",
            "y = Attention <is_causal: int = 1, q_num_heads: int = 4, kv_num_heads: int = 2>"
            " (q, k, v)",
        )

    text, _ = after(model(), FindAttention())
    assert text.count("\n") == 0
    assert text.startswith("y = optc.Attention <num_heads = 4, kv_num_heads = 2")
    assert "softcap = 0, window = 0>" in text
    values = {"q": f32(2, 7, 32), "k": f32(2, 7, 16), "v": f32(2, 7, 12)}
    assert unchanged(model(), values, FindAttention()) < 1e-5


def with_sinks(count: int) -> ir.Model:
    return exported(
        f"(float[B,4,S,8] q, float[B,2,S,8] k, float[B,2,S,6] v, float[{count}] sinks)"
        " => (float[B,S,4,6] y)",
        f"y = optc.Attention {CAPTURED[:-1]}, chunk: int = 16> (q, k, v, sinks)",
    )


def test_sinks_and_chunks_are_handed_on() -> None:
    text, report = after(with_sinks(4), FindAttention())
    assert "window = 8, chunk = 16> (t1, t3, t5, sinks)" in text
    assert report.details == {"window 8, chunk 16, sinks": 1}


@pytest.mark.parametrize(
    ("model", "message"),
    [
        (standard("is_causal: int = 1", ", m"), "its mask is computed of the input m"),
        (standard("scale: float = 1.0"), "it is not causal"),
        (with_sinks(2), "its sinks have shape [2], not one of 4 heads"),
        (captured("3", "3"), "q, k, v have [4, 3, 3] heads"),
        (captured("4", "2"), "q, k, v have [4, 4, 2] heads"),
        (captured("Hkv", "2"), "k has shape ['B', 'Hkv', 'S', 8], not [B, heads, S, size]"),
    ],
)
def test_near_misses_say_why(model: ir.Model, message: str) -> None:
    report = FindAttention().run(model)
    assert report.count == 0
    assert report.skipped[0].endswith(f"not an attention pattern I know: {message}")
