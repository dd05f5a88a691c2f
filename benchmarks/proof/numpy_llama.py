"""An independent Llama in NumPy, with fake quantization: the yardstick of `quality.py`.

Nothing of optc is used. Float32 arithmetic; weights are read with the safetensors package.
"""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]


@dataclass(frozen=True)
class FakeQuant:
    """The rounding of weights and activations.

    Attributes:
        bits: Bits of the layers' weights; 0 leaves everything in float32. The head has 8 bits.
        group: Input channels that share a scale and zero point; 0 is symmetric per channel.
    """

    bits: int = 0
    group: int = 0

    def weight(self, weight: Array, bits: int, group: int) -> Array:
        """Round rows [N, K] to the nearest representable value."""
        if not bits:
            return weight
        if not group:
            top = 2 ** (bits - 1) - 1
            scale = np.abs(weight).max(axis=1, keepdims=True) / top
            return np.clip(np.round(weight / scale), -top, top) * scale
        groups = weight.reshape(weight.shape[0], -1, group)
        low = np.minimum(groups.min(axis=2, keepdims=True), 0)
        high = np.maximum(groups.max(axis=2, keepdims=True), 0)
        scale = ((high - low) / (2**bits - 1)).astype(np.float16).astype(np.float32)
        zero = np.round(-low / scale)
        steps = np.clip(np.round(groups / scale) + zero, 0, 2**bits - 1)
        return ((steps - zero) * scale).reshape(weight.shape)

    def activation(self, x: Array) -> Array:
        """Round each row to 8 bits, symmetric."""
        if not self.bits:
            return x
        scale = np.abs(x).max(axis=-1, keepdims=True) / 127
        scale[scale == 0] = 1
        return np.round(x / scale) * scale


def read_tensors(folder: Path) -> dict[str, Array]:
    """All tensors of a checkpoint folder as float32."""
    from safetensors.torch import load_file

    found: dict[str, Array] = {}
    for shard in sorted(folder.glob("*.safetensors")):
        found |= {name: tensor.float().numpy() for name, tensor in load_file(shard).items()}
    return found


class NumpyLlama:
    """Logits of whole windows, no KV cache.

    Args:
        folder: Hugging Face folder of a Llama with a tied head and plain rotary embedding.
        quant: What is rounded.
        tensors: Float32 weights in the place of the folder's, by the same names.
    """

    def __init__(
        self, folder: Path, quant: FakeQuant, tensors: dict[str, Array] | None = None
    ) -> None:
        self.config = json.loads((folder / "config.json").read_text())
        self.quant = quant
        tensors = dict(tensors) if tensors is not None else read_tensors(folder)
        embedding = tensors.pop("model.embed_tokens.weight")
        self.head = quant.weight(embedding, 8 if quant.bits else 0, 0)
        # The engine's embedding reads the head's copy, so the yardstick does too.
        self.embedding = self.head
        self.tensors = {
            name: quant.weight(t, quant.bits, quant.group) if t.ndim == 2 else t
            for name, t in tensors.items()
        }

    def logits(self, tokens: Array) -> Array:
        """Logits [S, V] of one window [S]."""
        x = self.embedding[tokens]
        for layer in range(self.config["num_hidden_layers"]):
            prefix = f"model.layers.{layer}."
            x = x + self._attention(self._norm(x, prefix + "input_layernorm"), prefix)
            x = x + self._mlp(self._norm(x, prefix + "post_attention_layernorm"), prefix)
        return self.quant.activation(self._norm(x, "model.norm")) @ self.head.T

    def _linear(self, x: Array, name: str) -> Array:
        return self.quant.activation(x) @ self.tensors[name + ".weight"].T

    def _norm(self, x: Array, name: str) -> Array:
        scale = np.sqrt(np.mean(x * x, axis=-1, keepdims=True) + self.config["rms_norm_eps"])
        return x / scale * self.tensors[name + ".weight"]

    def _mlp(self, x: Array, prefix: str) -> Array:
        gate = self._linear(x, prefix + "mlp.gate_proj")
        up = self._linear(x, prefix + "mlp.up_proj")
        return self._linear(gate / (1 + np.exp(-gate)) * up, prefix + "mlp.down_proj")

    def _attention(self, x: Array, prefix: str) -> Array:
        heads, kv_heads = (self.config[k] for k in ("num_attention_heads", "num_key_value_heads"))
        q, k, v = (
            self._linear(x, f"{prefix}self_attn.{kind}_proj").reshape(len(x), count, -1)
            for kind, count in (("q", heads), ("k", kv_heads), ("v", kv_heads))
        )
        q, k = self._rotate(q), self._rotate(k)
        k, v = (np.repeat(t, heads // kv_heads, axis=1) for t in (k, v))
        q, k, v = (t.swapaxes(0, 1) for t in (q, k, v))
        scores = q @ k.swapaxes(1, 2) / math.sqrt(q.shape[-1])
        scores = np.where(np.tril(np.ones(scores.shape[1:], bool)), scores, -np.inf)
        weights = np.exp(scores - scores.max(axis=-1, keepdims=True))
        weights /= weights.sum(axis=-1, keepdims=True)
        out = (weights @ v).swapaxes(0, 1).reshape(len(x), -1)
        return self._linear(out, prefix + "self_attn.o_proj")

    def _rotate(self, x: Array) -> Array:
        half = x.shape[-1] // 2
        frequency = 1 / self.config["rope_theta"] ** (np.arange(half) / half)
        angle = np.arange(len(x))[:, None] * frequency
        cos, sin = (f(angle).astype(np.float32)[:, None] for f in (np.cos, np.sin))
        low, high = x[..., :half], x[..., half:]
        return np.concatenate([low * cos - high * sin, high * cos + low * sin], axis=-1)


def log_softmax(logits: Array) -> Array:
    """Log-probabilities [S, V] in float64."""
    rows = logits.astype(np.float64)
    rows -= rows.max(axis=-1, keepdims=True)
    return rows - np.log(np.exp(rows).sum(axis=-1, keepdims=True))


def divergence(reference: NumpyLlama, other: NumpyLlama, windows: Array) -> dict[str, float]:
    """Mean KL(reference ‖ other) in nats per token and top-1 agreement over windows [W, S]."""
    kl: list[Array] = []
    agree: list[Array] = []
    for window in windows:
        p, q = log_softmax(reference.logits(window)), log_softmax(other.logits(window))
        kl.append((np.exp(p) * (p - q)).sum(axis=-1))
        agree.append(p.argmax(axis=-1) == q.argmax(axis=-1))
    return {
        "kl_mean": float(np.concatenate(kl).mean()),
        "top1_agreement": float(np.concatenate(agree).mean()),
    }
