"""Llama in plain PyTorch. Module names follow transformers' LlamaForCausalLM, so that a state dict
is a checkpoint.
"""

from __future__ import annotations

import math
from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn


class RMSNorm(nn.Module):
    """Norm over the last axis."""

    def __init__(self, dim: int, eps: float) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(dim))
        self.eps = eps

    def forward(self, x: Tensor) -> Tensor:
        """Normed x [..., dim]."""
        return F.rms_norm(x, (x.shape[-1],), self.weight.to(x.dtype), self.eps)


def rope_tables(config: dict[str, Any], length: int) -> tuple[Tensor, Tensor]:
    """Cosines and sines [length, head_dim]."""
    dim = config["head_dim"]
    inv = config["rope_theta"] ** (-torch.arange(0, dim, 2, dtype=torch.float32) / dim)
    angle = torch.outer(torch.arange(length, dtype=torch.float32), inv)
    angle = torch.cat([angle, angle], dim=-1)
    return angle.cos(), angle.sin()


def rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Rotary embedding (Su et al., 2021) of x [..., T, head_dim]."""
    half = x.shape[-1] // 2
    turned = torch.cat([-x[..., half:], x[..., :half]], dim=-1)
    return x * cos + turned * sin


class Attention(nn.Module):
    """Causal grouped-query attention over whole sequences."""

    def __init__(self, config: dict[str, Any]) -> None:
        super().__init__()
        hidden, dim = config["hidden_size"], config["head_dim"]
        self.nq, self.nkv = config["num_attention_heads"], config["num_key_value_heads"]
        self.d = dim
        self.q_proj = nn.Linear(hidden, self.nq * dim, bias=False)
        self.k_proj = nn.Linear(hidden, self.nkv * dim, bias=False)
        self.v_proj = nn.Linear(hidden, self.nkv * dim, bias=False)
        self.o_proj = nn.Linear(self.nq * dim, hidden, bias=False)

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        """x [B, T, D] to the same shape."""
        b, t, _ = x.shape
        q = self.q_proj(x).view(b, t, self.nq, self.d).transpose(1, 2)
        k = self.k_proj(x).view(b, t, self.nkv, self.d).transpose(1, 2)
        v = self.v_proj(x).view(b, t, self.nkv, self.d).transpose(1, 2)
        q, k = rotate(q, cos, sin), rotate(k, cos, sin)
        if self.nkv != self.nq:
            k = k.repeat_interleave(self.nq // self.nkv, dim=1)
            v = v.repeat_interleave(self.nq // self.nkv, dim=1)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.o_proj(y.transpose(1, 2).reshape(b, t, self.nq * self.d))


class MLP(nn.Module):
    """SwiGLU."""

    def __init__(self, config: dict[str, Any]) -> None:
        super().__init__()
        hidden, inner = config["hidden_size"], config["intermediate_size"]
        self.gate_proj = nn.Linear(hidden, inner, bias=False)
        self.up_proj = nn.Linear(hidden, inner, bias=False)
        self.down_proj = nn.Linear(inner, hidden, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        """x [..., D] to the same shape."""
        return self.down_proj(F.silu(self.gate_proj(x)) * self.up_proj(x))


class Layer(nn.Module):
    """Attention and MLP, each behind its norm and beside the residual."""

    def __init__(self, config: dict[str, Any]) -> None:
        super().__init__()
        self.input_layernorm = RMSNorm(config["hidden_size"], config["rms_norm_eps"])
        self.self_attn = Attention(config)
        self.post_attention_layernorm = RMSNorm(config["hidden_size"], config["rms_norm_eps"])
        self.mlp = MLP(config)

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        """x [B, T, D] to the same shape."""
        x = x + self.self_attn(self.input_layernorm(x), cos, sin)
        return x + self.mlp(self.post_attention_layernorm(x))


class Body(nn.Module):
    """All but the head."""

    def __init__(self, config: dict[str, Any]) -> None:
        super().__init__()
        self.embed_tokens = nn.Embedding(config["vocab_size"], config["hidden_size"])
        self.layers = nn.ModuleList(Layer(config) for _ in range(config["num_hidden_layers"]))
        self.norm = RMSNorm(config["hidden_size"], config["rms_norm_eps"])


class Llama(nn.Module):
    """Llama with tied embeddings, initialized by ``seed``."""

    def __init__(self, config: dict[str, Any], seed: int = 0) -> None:
        super().__init__()
        self.model = Body(config)
        cos, sin = rope_tables(config, config["max_position_embeddings"])
        self.register_buffer("cos", cos, persistent=False)
        self.register_buffer("sin", sin, persistent=False)
        generator = torch.Generator().manual_seed(seed)
        for name, parameter in self.named_parameters():
            if parameter.dim() == 2:
                std = 0.02
                if name.endswith(("o_proj.weight", "down_proj.weight")):
                    std /= math.sqrt(2 * config["num_hidden_layers"])
                with torch.no_grad():
                    parameter.normal_(0.0, std, generator=generator)

    def forward(self, ids: Tensor) -> Tensor:
        """Tokens [B, T] to logits [B, T, V]."""
        length = ids.shape[1]
        cos, sin = self.cos[:length], self.sin[:length]
        x = self.model.embed_tokens(ids)
        if torch.is_autocast_enabled("cpu"):
            x = x.to(torch.get_autocast_dtype("cpu"))
            cos, sin = cos.to(x.dtype), sin.to(x.dtype)
        for layer in self.model.layers:
            x = layer(x, cos, sin)
        return F.linear(self.model.norm(x), self.model.embed_tokens.weight)
