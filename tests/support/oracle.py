"""NumPy oracles of the operators of the normal form, written without looking at their bodies."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import Any

import ml_dtypes
import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]


def rms_norm(x: Array, scale: Array, epsilon: float) -> Array:
    wide = x.astype(np.float64)
    mean = np.mean(wide * wide, axis=-1, keepdims=True)
    result: Array = wide / np.sqrt(mean + epsilon) * scale
    return result


def head_norm(x: Array, scale: Array, heads: int, epsilon: float) -> Array:
    split = x.reshape(*x.shape[:-1], heads, -1)
    return rms_norm(split, scale, epsilon).reshape(x.shape)


def activation(x: Array, name: str) -> Array:
    wide = x.astype(np.float64)
    if name == "silu":
        return wide / (1 + np.exp(-wide))
    if name == "gelu":
        erf = np.vectorize(math.erf)(wide / math.sqrt(2))
        return 0.5 * wide * (1 + erf)
    inner = math.sqrt(2 / math.pi) * (wide + 0.044715 * wide**3)
    return 0.5 * wide * (1 + np.tanh(inner))


def gated(
    gate_up: Array, name: str, *, alpha: float = 1.0, limit: float = np.inf, up_shift: float = 0.0
) -> Array:
    """activation(gate) * up; gate at most the limit, up within it and shifted."""
    half = gate_up.shape[-1] // 2
    gate, up = gate_up[..., :half], gate_up[..., half:]
    held = np.minimum(gate, limit)
    # alpha multiplies what silu's sigmoid takes alone
    return activation(alpha * held, name) / alpha * (np.clip(up, -limit, limit) + up_shift)


def rotary(x: Array, cos: Array, sin: Array, heads: int, interleaved: bool = False) -> Array:
    """x [T, heads * d]; cos, sin [T, r/2]: the first r values of each head are rotated."""
    split = x.reshape(x.shape[0], heads, -1).astype(np.float64).copy()
    half = cos.shape[-1]
    index = np.arange(half)
    first, second = (2 * index, 2 * index + 1) if interleaved else (index, index + half)
    a, b = split[:, :, first].copy(), split[:, :, second].copy()
    c, s = cos[:, None, :], sin[:, None, :]
    split[:, :, first], split[:, :, second] = a * c - b * s, b * c + a * s
    return split.reshape(x.shape)


#: What four bits of E2M1 stand for, by magnitude; odd places have an odd mantissa.
E2M1 = np.array([0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0])


def e2m1(values: Array) -> Array:
    """Values to the nearest one of E2M1, halfway to the even mantissa, saturating; float64."""
    wide = np.asarray(values, np.float64)
    sizes = np.minimum(np.abs(wide), E2M1[-1])
    above = np.searchsorted(E2M1, sizes)
    below = np.maximum(above - 1, 0)
    to_below, to_above = sizes - E2M1[below], E2M1[above] - sizes
    down = (to_below < to_above) | ((to_below == to_above) & (below % 2 == 0))
    nearest: Array = np.copysign(E2M1[np.where(down, below, above)], wide)
    return nearest


def e4m3(values: Array) -> Array:
    """float32 values to the nearest one of E4M3, saturating."""
    wide = np.minimum(np.asarray(values, np.float32), np.float32(448))
    rounded: Array = wide.astype(ml_dtypes.float8_e4m3fn).astype(np.float32)
    return rounded


def nvfp4(values: Array, whole: float) -> Array:
    """Values [..., K] as NVFP4 has them, blocks of 16 along K; ``whole`` scales the tensor."""
    blocks = np.asarray(values, np.float32).reshape(*values.shape[:-1], -1, 16)
    peak = np.abs(blocks).max(axis=-1, keepdims=True)
    scales = e4m3(peak / np.float32(6) / np.float32(whole)) * np.float32(whole)
    ratio = np.divide(blocks, scales, out=np.zeros_like(blocks), where=scales > 0)
    wide: Array = e2m1(ratio) * scales.astype(np.float64)
    return wide.reshape(values.shape)


def nvfp4_searched(values: Array, whole: float) -> Array:
    """As `nvfp4`, each block by the one of seven scales that has the least squared error."""
    found = np.empty(values.shape, np.float64)
    for row, out in zip(np.asarray(values, np.float32), found, strict=True):
        for at in range(0, len(row), 16):
            block = row[at : at + 16]
            tried = []
            for reach in (6.0, 7.0, 6.5, 5.5, 5.0, 4.5, 4.0):
                peak = np.float32(np.abs(block).max() / np.float32(whole))
                scale = float(e4m3(peak / np.float32(reach)) * np.float32(whole))
                tried.append(e2m1(block / np.float32(scale or 1.0)) * scale)
            errors = [float(np.square(one - block).sum()) for one in tried]
            out[at : at + 16] = tried[int(np.argmin(errors))]
    return found


def searched(
    rows: Array, levels: Array, scales: Callable[[Array], Iterable[Array]], group: int
) -> tuple[Array, Array]:
    """Values [n, K] and scales [n, G] of rows [n, K], by trying each scale and each level: of the
    least squared error of the group, the first of equals."""
    size = group or rows.shape[1]
    values = np.empty(rows.shape, np.float32)
    chosen = np.empty((len(rows), rows.shape[1] // size), np.float32)
    for index in np.ndindex(chosen.shape):
        here = index[0], slice(index[1] * size, (index[1] + 1) * size)
        block = rows[here]
        least = np.inf
        for one in scales(np.abs(block).max(keepdims=True)):
            ratio = block / np.where(one == 0, np.float32(1), one)
            near = levels[np.abs(ratio[:, None] - levels).argmin(axis=1)]
            error = float(np.square(near.astype(np.float64) * one - block).sum())
            if error < least * (1 - 1e-9):
                least, values[here], chosen[index] = error, near, one[0]
    return values, chosen


def bf16(values: Array) -> Array:
    """float32 rounded to bfloat16, ties to even, as float32."""
    bits = np.ascontiguousarray(values, np.float32).view(np.uint32)
    kept = (bits + 0x7FFF + ((bits >> 16) & 1)) & 0xFFFF0000
    return kept.astype(np.uint32).view(np.float32)


def represented(rows: Array, dtype: str) -> Array:
    """Rows [..., D] as a KV pool of ``dtype`` gives them back, float32."""
    if dtype == "float32":
        return rows
    if dtype == "bfloat16":
        return bf16(rows)
    if dtype == "int4":
        codes, groups, step = int4_codes(rows)
        return int4_integers(codes, groups).astype(np.float32) * step
    codes, scale = quantize_activation(rows)
    return codes.astype(np.float32) * scale


def int4_codes(rows: Array) -> tuple[Array, Array, Array]:
    """Rows [..., D] as int4 pools hold them: codes [..., D] of 0..15; for each 16 channels a scale
    of 1..16 and a zero point [..., D / 16, 2]; and the step [..., 1], bfloat16 as float32."""
    step = bf16(np.abs(rows).max(axis=-1, keepdims=True).astype(np.float32) / np.float32(119))
    step = np.where(step == 0, np.float32(1), step)
    whole = np.rint(rows / step).astype(np.int64)
    codes, groups = np.empty(whole.shape, np.uint8), []
    for g in range(0, rows.shape[-1], 16):
        i = whole[..., g : g + 16]
        low, high = np.minimum(i.min(-1), 0)[..., None], np.maximum(i.max(-1), 0)[..., None]
        best = None
        for wanted in (np.ceil((high - low) / 15), np.floor((high - low) / 15)):
            scale = np.clip(wanted, 1, 16).astype(np.int64)
            point = np.minimum(np.rint(-low / scale), 15).astype(np.int64)
            code = np.clip(np.rint(i / scale) + point, 0, 15).astype(np.int64)
            lost = np.square(scale * (code - point) - i).sum(-1, keepdims=True)
            now = (code, scale, point, lost)
            if best is not None:
                now = tuple(np.where(lost < best[3], a, b) for a, b in zip(now, best, strict=True))
            best = now
        assert best is not None
        codes[..., g : g + 16] = best[0]
        groups.append(np.concatenate(best[1:3], axis=-1))
    return codes, np.stack(groups, axis=-2), step


def int4_integers(codes: Array, groups: Array) -> Array:
    """The int8 that codes [..., D] stand for."""
    scale, point = (np.repeat(groups[..., i].astype(np.int64), 16, axis=-1) for i in range(2))
    return scale * (codes.astype(np.int64) - point)


def causal_conv(x: Array, weight: Array, bias: Array | None = None) -> Array:
    """Each channel of one sequence's rows x [S, C] by its filter [K], behind rows of zeros."""
    kernel = weight.shape[1]
    rows = np.concatenate([np.zeros((kernel - 1, x.shape[1])), np.float64(x)])
    out = sum(rows[j : j + len(x)] * np.float64(weight)[:, j] for j in range(kernel))
    return np.asarray(out if bias is None else out + bias)


def linear_attention(
    q: Array,
    k: Array,
    v: Array,
    decay: Array,
    beta: Array | None,
    scale: float,
    delta: int,
    state: Array | None = None,
    rates: Array | None = None,
) -> tuple[Array, Array]:
    """One sequence's rows: q, k [S, Hk, Dk], v [S, H, Dv], beta [S, H] and decay [S, H], [S, H, Dk]
    or, with rates [Dk, H*Dv], [S, H, Dv] -> [S, H, Dv], and the states [S, H, Dk, Dv] behind each
    row."""
    shared = v.shape[1] // q.shape[1]
    q, k = (np.repeat(np.float64(x), shared, axis=1) for x in (q, k))
    now = np.zeros((v.shape[1], q.shape[2], v.shape[2])) if state is None else np.float64(state)
    out, states = [], []
    for t in range(len(q)):
        exponents = np.float64(decay[t]).reshape(len(now), -1, 1)
        if rates is not None:
            by_head = np.float64(rates).reshape(len(rates), *v.shape[1:]).swapaxes(0, 1)
            exponents = exponents.swapaxes(1, 2) * by_head
        now = now * np.exp(exponents)
        new = v[t] - delta * np.einsum("hk,hkv->hv", k[t], now)
        factor = 1 if beta is None else beta[t][:, None]
        now = now + np.einsum("hk,hv->hkv", k[t], factor * new)
        out.append(scale * np.einsum("hk,hkv->hv", q[t], now))
        states.append(now)
    return np.array(out), np.array(states)


def attention(
    q: Array,
    k: Array,
    v: Array,
    heads: int,
    kv_heads: int,
    scale: float,
    cap: float,
    window: int,
    rounds: bool = False,
    *,
    chunk: int = 0,
    sinks: Array | None = None,
    slopes: Array | None = None,
    distance_bias: Array | None = None,
) -> Array:
    """Causal attention of one sequence; q [S, H*Dk], k, v [L, Hkv*D]: the last S of L tokens.

    ``rounds``: queries, and weights as powers of two relative to an integer, to bfloat16.
    ``chunk``: tokens of a chunk, of which rows see their own only. ``sinks`` and ``slopes`` [H];
    ``distance_bias`` [H, N] by distance, of which the last one stands for all farther away.
    """
    q = bf16(q) if rounds else q
    rows, total = q.shape[0], k.shape[0]
    qs = q.reshape(rows, heads, -1).astype(np.float64)
    ks, vs = (x.reshape(total, kv_heads, -1).astype(np.float64) for x in (k, v))
    out = np.empty((rows, heads, vs.shape[-1]))
    for i in range(rows):
        own = total - rows + i
        first = max(0, own - window + 1) if window else 0
        first = max(first, own // chunk * chunk) if chunk else first
        for h in range(heads):
            kv = h * kv_heads // heads
            score = ks[first : own + 1, kv] @ qs[i, h] * scale
            if cap:
                score = cap * np.tanh(score / cap)
            if slopes is not None:
                score = score + float(slopes[h]) * (np.arange(first, own + 1) - own)
            if distance_bias is not None:
                behind = np.minimum(own - np.arange(first, own + 1), distance_bias.shape[1] - 1)
                score = score + distance_bias[h].astype(np.float64)[behind]
            power = score * math.log2(math.e)
            sink = -np.inf if sinks is None else float(sinks[h]) * math.log2(math.e)
            largest = np.ceil(max(power.max(), sink))
            weight = 2 ** (power - largest)
            weight = bf16(weight).astype(np.float64) if rounds else weight
            out[i, h] = weight @ vs[first : own + 1, kv] / (weight.sum() + 2 ** (sink - largest))
    return out.reshape(rows, -1)


def quantize_activation(x: Array, bits: int = 8) -> tuple[Array, Array]:
    largest = {8: 127, 16: 32512}[bits]
    s = np.abs(x).max(axis=-1, keepdims=True).astype(np.float32) / np.float32(largest)
    s = np.where(s == 0, np.float32(1), s)
    return np.rint(x / s).astype(f"int{bits}"), s


def dequantize(weight: Array, scale: Array, zero: Array | None) -> Array:
    """weight [K, N] integers; scale [N] or [G, N]."""
    wide = weight.astype(np.float64)
    if scale.ndim == 1:
        return (wide - (0 if zero is None else zero.astype(np.float64))) * scale
    size = weight.shape[0] // scale.shape[0]
    if zero is not None:
        wide -= np.repeat(zero.astype(np.float64), size, axis=0)
    return wide * np.repeat(scale, size, axis=0)
