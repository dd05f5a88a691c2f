"""A Llama in NumPy whose keys and values are held in few bits, the latest tokens in more."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from benchmarks.proof.kv_bits.codes import Array, Float32, Int8, Rounding
from benchmarks.proof.numpy_llama import FakeQuant, NumpyLlama


@dataclass(frozen=True)
class KVType:
    """A way to hold keys and values.

    A row sees the first ``sinks`` tokens and its latest ``window`` tokens as ``kept`` holds them,
    and so all tokens whose group is not older than the window as a whole: no row sees a group that
    has later tokens. What a row sees depends on positions alone.

    Attributes:
        turned_keys: Heads of queries and keys are turned by a Hadamard matrix.
        turned_values: Heads of values are turned, and turned back.
        balanced: Keys and queries as the pass `balance-keys` makes them.
    """

    keys: Rounding = field(default_factory=Float32)
    values: Rounding = field(default_factory=Float32)
    window: int = 0
    sinks: int = 0
    kept: Rounding = field(default_factory=Int8)
    turned_keys: bool = False
    turned_values: bool = False
    balanced: bool = False

    @property
    def bits_per_value(self) -> float:
        """Of a token that is not kept, mean of keys and values."""
        return (self.keys.bits_per_value + self.values.bits_per_value) / 2

    @property
    def block(self) -> int:
        """Tokens that enter few bits together."""
        return max(self.keys.tokens, self.values.tokens)

    def bytes_of(self, tokens: int, values: int) -> float:
        """Of a context of ``tokens`` with ``values`` keys and as many values a token, mean over
        where the last block ends."""
        kept = min(tokens, self.window + self.sinks + (self.block - 1) / 2)
        of_kept = self.kept.bits_per_value
        return (kept * of_kept + (tokens - kept) * self.bits_per_value) * values / 4

    def keeps(self, tokens: int) -> Array:
        """[row, token] seen as ``kept`` holds it."""
        row, token = np.arange(tokens)[:, None], np.arange(tokens)
        last_of_block = token // self.block * self.block + self.block - 1
        kept: Array = (last_of_block > row - self.window) | (token < self.sinks)
        return kept & (token <= row)


@dataclass(frozen=True)
class Balance:
    """By layer: means of keys [Hkv, D], and what keys [Hkv, D] are divided by."""

    means: list[Array]
    scales: list[Array]


class SimulatedKV(NumpyLlama):
    """Logits of whole windows with keys and values as ``kv`` holds them.

    Args:
        folder: As of `NumpyLlama`.
        kv: How keys and values are held.
        tensors: As of `NumpyLlama`.
        balance: Where ``kv`` is balanced.
    """

    def __init__(
        self,
        folder: Path,
        kv: KVType,
        tensors: dict[str, Array] | None = None,
        balance: Balance | None = None,
    ) -> None:
        super().__init__(folder, FakeQuant(), tensors)
        self.kv, self._balance = kv, balance

    def _attention(self, x: Array, prefix: str) -> Array:
        q, k, v = self.heads(x, prefix)
        shared = q.shape[1] // k.shape[1]
        if self.kv.balanced and self._balance is not None:
            layer = int(prefix.split(".")[2])
            scales = self._balance.scales[layer]
            k = (k - self._balance.means[layer]) / scales
            q = q * np.repeat(scales, shared, axis=0)
        turn = hadamard(q.shape[-1])
        if self.kv.turned_keys:
            q, k = q @ turn, k @ turn
        if self.kv.turned_values:
            v = v @ turn
        keeps = self.kv.keeps(len(x))
        scores = _scores(q, self.kv.keys.represented(k), shared)
        if keeps.any():
            scores = np.where(keeps, _scores(q, self.kv.kept.represented(k), shared), scores)
        scores = np.where(np.tril(np.ones(keeps.shape, bool)), scores, -np.inf)
        weights = np.exp(scores - scores.max(axis=-1, keepdims=True))
        weights /= weights.sum(axis=-1, keepdims=True)
        out = _weighed(np.where(keeps, 0, weights), self.kv.values.represented(v), shared)
        if keeps.any():
            out += _weighed(np.where(keeps, weights, 0), self.kv.kept.represented(v), shared)
        if self.kv.turned_values:
            out = out @ turn.T
        return self._linear(out.reshape(len(x), -1), prefix + "self_attn.o_proj")

    def heads(self, x: Array, prefix: str) -> tuple[Array, Array, Array]:
        """Queries, keys, both rotary, and values [S, H, D] of a layer's input."""
        counts = [self.config[f"num_{kind}_heads"] for kind in ("attention", "key_value")]
        q, k, v = (
            self._linear(x, f"{prefix}self_attn.{kind}_proj").reshape(len(x), count, -1)
            for kind, count in zip("qkv", (*counts, counts[1]), strict=True)
        )
        return self._rotate(q), self._rotate(k), v


class _Moments(SimulatedKV):
    """Sums of keys and of squares, by layer."""

    def __init__(self, folder: Path, tensors: dict[str, Array]) -> None:
        super().__init__(folder, KVType(), tensors)
        self.sums: dict[str, list[Array]] = {}

    def heads(self, x: Array, prefix: str) -> tuple[Array, Array, Array]:
        q, k, v = super().heads(x, prefix)
        by_head = np.square(q).reshape(len(x), k.shape[1], -1, q.shape[-1]).mean(2)
        new = [np.float64(1) * one.sum(0) for one in (k, np.square(k), by_head)]
        old = self.sums.get(prefix, [0.0, 0.0, 0.0])
        self.sums[prefix] = [a + b for a, b in zip(new, old, strict=True)]
        return q, k, v


def balance_of(folder: Path, tensors: dict[str, Array], windows: Array) -> Balance:
    """By the definition of `balance-keys`, over windows [W, S]."""
    moments = _Moments(folder, tensors)
    for window in windows:
        moments.logits(window)
    means, scales = [], []
    for sums in moments.sums.values():
        mean, k_square, q_square = (one / windows.size for one in sums)
        pairs = [
            one[:, : one.shape[1] // 2] + one[:, one.shape[1] // 2 :]
            for one in (np.maximum(k_square - np.square(mean), 0), q_square)
        ]
        raw = (pairs[0] / pairs[1]) ** 0.25
        even = raw / np.exp(np.log(raw).mean(1, keepdims=True))
        means.append(mean.astype(np.float32))
        scales.append(np.concatenate([even, even], axis=1).astype(np.float32))
    return Balance(means, scales)


def hadamard(size: int) -> Array:
    """Sylvester's matrix, orthonormal; ``size`` is a power of two."""
    found = np.ones((1, 1), np.float32)
    while len(found) < size:
        found = np.block([[found, found], [found, -found]])
    return found / np.float32(math.sqrt(size))


def _scores(q: Array, k: Array, shared: int) -> Array:
    keys = np.repeat(k, shared, axis=1).transpose(1, 2, 0)
    scores: Array = q.swapaxes(0, 1) @ keys / math.sqrt(q.shape[-1])
    return scores


def _weighed(weights: Array, v: Array, shared: int) -> Array:
    """[S, H, D]."""
    out: Array = weights @ np.repeat(v, shared, axis=1).swapaxes(0, 1)
    return out.swapaxes(0, 1)
