"""Write a random-weight mixture of experts of a real shape as a Hugging Face folder.

    python -m benchmarks.inputs.build_random_moe qwen3-30b-a3b OUT --layers 4 [--tokenizer DIR]

Weights are bf16 and drawn one tensor after the other, so that little memory is needed. Random
routers choose all experts about equally often, so that a step reads as many as the shape allows. A
layer has 1.2 GB (deepseek-v2-lite: 1.1 GB, gpt-oss-20b: 1.6 GB, mixtral-8x7b: 2.9 GB).
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from benchmarks.inputs.build_random_llama import build

YARN = {
    "rope_type": "yarn",
    "factor": 32.0,
    "beta_fast": 32.0,
    "beta_slow": 1.0,
    "truncate": False,
    "original_max_position_embeddings": 4096,
}


@dataclass(frozen=True)
class Shape:
    """Dimensions that all mixtures of experts have.

    Attributes:
        hidden: D.
        experts: E.
        chosen: k, experts of a token.
        mlp: F, of one expert.
    """

    hidden: int
    layers: int
    heads: int
    kv_heads: int
    head_dim: int
    experts: int
    chosen: int
    mlp: int
    vocab: int

    def config(self) -> dict[str, object]:
        """The part of config.json that all have."""
        return {
            "hidden_size": self.hidden,
            "num_hidden_layers": self.layers,
            "num_attention_heads": self.heads,
            "num_key_value_heads": self.kv_heads,
            "head_dim": self.head_dim,
            "num_experts_per_tok": self.chosen,
            "vocab_size": self.vocab,
            "hidden_act": "silu",
            "tie_word_embeddings": False,
            "torch_dtype": "bfloat16",
        }

    def tensors(self) -> Iterator[tuple[str, tuple[int, ...]]]:
        """Names and shapes in the order of the file."""
        yield "model.embed_tokens.weight", (self.vocab, self.hidden)
        for layer in range(self.layers):
            prefix = f"model.layers.{layer}."
            yield prefix + "input_layernorm.weight", (self.hidden,)
            yield from ((prefix + name, dims) for name, dims in self.attention())
            yield prefix + "post_attention_layernorm.weight", (self.hidden,)
            yield from ((prefix + name, dims) for name, dims in self.mixture())
        yield "model.norm.weight", (self.hidden,)
        yield "lm_head.weight", (self.vocab, self.hidden)

    def attention(self) -> Iterator[tuple[str, tuple[int, ...]]]:
        """The projections of a layer's attention."""
        query, key = self.heads * self.head_dim, self.kv_heads * self.head_dim
        yield "self_attn.q_proj.weight", (query, self.hidden)
        yield "self_attn.k_proj.weight", (key, self.hidden)
        yield "self_attn.v_proj.weight", (key, self.hidden)
        yield "self_attn.o_proj.weight", (self.hidden, query)

    def mixture(self) -> Iterator[tuple[str, tuple[int, ...]]]:
        """Router and experts of a layer."""
        raise NotImplementedError


class SeparateExperts(Shape):
    """As Qwen3-30B-A3B: a checkpoint tensor for each expert's projection, normed heads."""

    def config(self) -> dict[str, object]:
        """config.json."""
        return {
            **super().config(),
            "architectures": ["Qwen3MoeForCausalLM"],
            "model_type": "qwen3_moe",
            "num_experts": self.experts,
            "moe_intermediate_size": self.mlp,
            "intermediate_size": 8 * self.mlp,
            "norm_topk_prob": True,
            "decoder_sparse_step": 1,
            "mlp_only_layers": [],
            "max_position_embeddings": 40960,
            "rope_theta": 1000000.0,
            "rms_norm_eps": 1e-6,
        }

    def attention(self) -> Iterator[tuple[str, tuple[int, ...]]]:
        """Heads are normed."""
        yield from super().attention()
        yield "self_attn.q_norm.weight", (self.head_dim,)
        yield "self_attn.k_norm.weight", (self.head_dim,)

    def mixture(self) -> Iterator[tuple[str, tuple[int, ...]]]:
        """Router, then expert by expert."""
        yield "mlp.gate.weight", (self.experts, self.hidden)
        for expert in range(self.experts):
            prefix = f"mlp.experts.{expert}."
            yield prefix + "gate_proj.weight", (self.mlp, self.hidden)
            yield prefix + "up_proj.weight", (self.mlp, self.hidden)
            yield prefix + "down_proj.weight", (self.hidden, self.mlp)


class NumberedExperts(Shape):
    """As Mixtral-8x7B: few and large experts, whose projections have numbers for names."""

    def config(self) -> dict[str, object]:
        """config.json."""
        return {
            **super().config(),
            "architectures": ["MixtralForCausalLM"],
            "model_type": "mixtral",
            "num_local_experts": self.experts,
            "intermediate_size": self.mlp,
            "sliding_window": None,
            "max_position_embeddings": 32768,
            "rope_theta": 1000000.0,
            "rms_norm_eps": 1e-5,
        }

    def mixture(self) -> Iterator[tuple[str, tuple[int, ...]]]:
        """Router, then expert by expert: gate, down, up."""
        yield "block_sparse_moe.gate.weight", (self.experts, self.hidden)
        for expert in range(self.experts):
            prefix = f"block_sparse_moe.experts.{expert}."
            yield prefix + "w1.weight", (self.mlp, self.hidden)
            yield prefix + "w2.weight", (self.hidden, self.mlp)
            yield prefix + "w3.weight", (self.mlp, self.hidden)


class StackedExperts(Shape):
    """As gpt-oss-20b in bf16: experts stacked and transposed, biases, sinks, every other window."""

    def config(self) -> dict[str, object]:
        """config.json."""
        kinds = ["sliding_attention", "full_attention"]
        return {
            **super().config(),
            "architectures": ["GptOssForCausalLM"],
            "model_type": "gpt_oss",
            "num_local_experts": self.experts,
            "intermediate_size": self.mlp,
            "layer_types": [kinds[layer % 2] for layer in range(self.layers)],
            "sliding_window": 128,
            "attention_bias": True,
            "max_position_embeddings": 131072,
            "rope_theta": 150000.0,
            "rope_scaling": YARN,
            "rms_norm_eps": 1e-5,
        }

    def attention(self) -> Iterator[tuple[str, tuple[int, ...]]]:
        """All projections have biases, and heads have sinks."""
        for name, dims in super().attention():
            yield name, dims
            yield name.replace("weight", "bias"), dims[:1]
        yield "self_attn.sinks", (self.heads,)

    def mixture(self) -> Iterator[tuple[str, tuple[int, ...]]]:
        """Router and experts, all with biases."""
        yield "mlp.router.weight", (self.experts, self.hidden)
        yield "mlp.router.bias", (self.experts,)
        yield "mlp.experts.gate_up_proj", (self.experts, self.hidden, 2 * self.mlp)
        yield "mlp.experts.gate_up_proj_bias", (self.experts, 2 * self.mlp)
        yield "mlp.experts.down_proj", (self.experts, self.mlp, self.hidden)
        yield "mlp.experts.down_proj_bias", (self.experts, self.hidden)


class LatentAttention(Shape):
    """As DeepSeek-V2-Lite: keys and values of one latent, experts that all tokens take, and a dense
    first layer."""

    latent, rotary, own, value = 512, 64, 128, 128
    shared, first_mlp = 2, 10944

    def config(self) -> dict[str, object]:
        """config.json."""
        return {
            **super().config(),
            "architectures": ["DeepseekV2ForCausalLM"],
            "model_type": "deepseek_v2",
            "num_key_value_heads": self.heads,
            "head_dim": self.rotary,
            "kv_lora_rank": self.latent,
            "q_lora_rank": None,
            "qk_rope_head_dim": self.rotary,
            "qk_nope_head_dim": self.own,
            "v_head_dim": self.value,
            "n_routed_experts": self.experts,
            "n_shared_experts": self.shared,
            "moe_intermediate_size": self.mlp,
            "intermediate_size": self.first_mlp,
            "first_k_dense_replace": 1,
            "norm_topk_prob": False,
            "max_position_embeddings": 32768,
            "rope_theta": 10000.0,
            "rms_norm_eps": 1e-6,
        }

    def tensors(self) -> Iterator[tuple[str, tuple[int, ...]]]:
        """The first layer has one MLP instead of experts."""
        first = "model.layers.0."
        for name, dims in super().tensors():
            if name.startswith(f"{first}mlp.gate."):
                yield from self._mlp(f"{first}mlp.", self.first_mlp)
            if not name.startswith(f"{first}mlp."):
                yield name, dims

    def attention(self) -> Iterator[tuple[str, tuple[int, ...]]]:
        """Queries, the latent with what is turned, and what is made of the latent."""
        key, heads = self.own + self.rotary, self.heads
        yield "self_attn.q_proj.weight", (heads * key, self.hidden)
        yield "self_attn.kv_a_proj_with_mqa.weight", (self.latent + self.rotary, self.hidden)
        yield "self_attn.kv_a_layernorm.weight", (self.latent,)
        yield "self_attn.kv_b_proj.weight", (heads * (self.own + self.value), self.latent)
        yield "self_attn.o_proj.weight", (self.hidden, heads * self.value)

    def mixture(self) -> Iterator[tuple[str, tuple[int, ...]]]:
        """Router, expert by expert, and those that all tokens take as one."""
        yield "mlp.gate.weight", (self.experts, self.hidden)
        for expert in range(self.experts):
            yield from self._mlp(f"mlp.experts.{expert}.", self.mlp)
        yield from self._mlp("mlp.shared_experts.", self.shared * self.mlp)

    def _mlp(self, prefix: str, width: int) -> Iterator[tuple[str, tuple[int, ...]]]:
        yield f"{prefix}gate_proj.weight", (width, self.hidden)
        yield f"{prefix}up_proj.weight", (width, self.hidden)
        yield f"{prefix}down_proj.weight", (self.hidden, width)


SHAPES: dict[str, Shape] = {
    "deepseek-v2-lite": LatentAttention(2048, 27, 16, 16, 64, 64, 6, 1408, 102400),
    "qwen3-30b-a3b": SeparateExperts(2048, 48, 32, 4, 128, 128, 8, 768, 151936),
    "mixtral-8x7b": NumberedExperts(4096, 32, 32, 8, 128, 8, 2, 14336, 32000),
    "gpt-oss-20b": StackedExperts(2880, 24, 64, 8, 64, 32, 4, 2880, 201088),
}


def main() -> None:
    """Parse the command line and write the folder."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("shape", choices=sorted(SHAPES))
    parser.add_argument("folder", type=Path)
    parser.add_argument("--tokenizer", type=Path, help="folder with a tokenizer.json")
    parser.add_argument("--layers", type=int, help="fewer layers than the shape has")
    parser.add_argument("--vocab", type=int, help="another size of the vocabulary")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    shape = SHAPES[options.shape]
    shape = replace(
        shape,
        layers=options.layers or shape.layers,
        vocab=options.vocab or shape.vocab,
    )
    build(shape, options.folder, options.tokenizer, options.seed)


if __name__ == "__main__":
    main()
