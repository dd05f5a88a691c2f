"""Write a random-weight Llama of a real shape as a Hugging Face folder with bf16 shards.

    python -m benchmarks.inputs.build_random_llama llama-3.2-1b OUT [--tokenizer DIR] [--layers N]

Tensors are drawn and written one by one, so that little memory is needed. The tokenizer of
another folder is copied along if its ids fit in the vocabulary; without one, gates score random
token ids.
"""

from __future__ import annotations

import argparse
import json
import math
import shutil
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Protocol

import numpy as np

from benchmarks.inputs.shards import TOKENIZER_FILES, Tensor, write_checkpoint

LLAMA3_ROPE = {
    "rope_type": "llama3",
    "factor": 32.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 8192,
}


class Described(Protocol):
    """A model's shape."""

    @property
    def vocab(self) -> int:
        """Ids of its vocabulary."""
        ...

    def config(self) -> dict[str, object]:
        """config.json."""
        ...

    def tensors(self) -> Iterator[tuple[str, tuple[int, ...]]]:
        """Names and shapes in the order of the file."""
        ...


@dataclass(frozen=True)
class Shape:
    """Dimensions of a Llama with a tied head."""

    hidden: int
    layers: int
    heads: int
    kv_heads: int
    head_dim: int
    mlp: int
    vocab: int
    context: int
    rope_theta: float
    rope_scaling: dict[str, object] | None

    def config(self) -> dict[str, object]:
        """config.json."""
        return {
            "architectures": ["LlamaForCausalLM"],
            "model_type": "llama",
            "hidden_size": self.hidden,
            "num_hidden_layers": self.layers,
            "num_attention_heads": self.heads,
            "num_key_value_heads": self.kv_heads,
            "head_dim": self.head_dim,
            "intermediate_size": self.mlp,
            "vocab_size": self.vocab,
            "max_position_embeddings": self.context,
            "rope_theta": self.rope_theta,
            "rope_scaling": self.rope_scaling,
            "rms_norm_eps": 1e-5,
            "hidden_act": "silu",
            "tie_word_embeddings": True,
            "torch_dtype": "bfloat16",
        }

    def tensors(self) -> Iterator[tuple[str, tuple[int, ...]]]:
        """Names and shapes in the order of the file."""
        yield "model.embed_tokens.weight", (self.vocab, self.hidden)
        query, key = self.heads * self.head_dim, self.kv_heads * self.head_dim
        for layer in range(self.layers):
            prefix = f"model.layers.{layer}."
            yield prefix + "input_layernorm.weight", (self.hidden,)
            yield prefix + "self_attn.q_proj.weight", (query, self.hidden)
            yield prefix + "self_attn.k_proj.weight", (key, self.hidden)
            yield prefix + "self_attn.v_proj.weight", (key, self.hidden)
            yield prefix + "self_attn.o_proj.weight", (self.hidden, query)
            yield prefix + "post_attention_layernorm.weight", (self.hidden,)
            yield prefix + "mlp.gate_proj.weight", (self.mlp, self.hidden)
            yield prefix + "mlp.up_proj.weight", (self.mlp, self.hidden)
            yield prefix + "mlp.down_proj.weight", (self.hidden, self.mlp)
        yield "model.norm.weight", (self.hidden,)


SHAPES = {
    "llama-3.2-1b": Shape(2048, 16, 32, 8, 64, 8192, 128256, 131072, 500000.0, LLAMA3_ROPE),
    "smollm2-135m": Shape(576, 30, 9, 3, 64, 1536, 49152, 8192, 100000.0, None),
    "llama-2-7b": Shape(4096, 32, 32, 32, 128, 11008, 32000, 4096, 10000.0, None),
}


def build(shape: Described, folder: Path, tokenizer: Path | None = None, seed: int = 0) -> None:
    """Write the model into ``folder``, which is created."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(shape.config(), indent=2) + "\n")
    if tokenizer is not None:
        _copy_tokenizer(tokenizer, folder, shape.vocab)
    rng = np.random.default_rng(seed)
    tensors = [
        Tensor(name, "BF16", dims, partial(_tiles, name, dims, rng))
        for name, dims in shape.tensors()
    ]
    write_checkpoint(folder, tensors)


def _tiles(name: str, dims: tuple[int, ...], rng: np.random.Generator) -> Iterator[np.ndarray]:
    """bf16 bits: ones for norms, zeros for other vectors, else normal with 1/sqrt(K), 4 Mi values
    at a time; K is the last axis, or the one before it of weights stacked by expert."""
    if len(dims) == 1:
        yield _bf16(np.full(dims, name.endswith("norm.weight"), np.float32))
        return
    rows, width = math.prod(dims[:-1]), dims[-1]
    factor = np.float32(1 / math.sqrt(dims[-1] if len(dims) == 2 else dims[-2]))
    step = max(1, (4 << 20) // width)
    for start in range(0, rows, step):
        size = (min(step, rows - start), width)
        yield _bf16(rng.standard_normal(size, np.float32) * factor)


def _bf16(values: np.ndarray) -> np.ndarray:
    """Upper halves of the float32 bits (truncation: good enough for random numbers)."""
    return (values.view(np.uint32) >> 16).astype(np.uint16)


def _copy_tokenizer(source: Path, folder: Path, vocab: int) -> None:
    import tokenizers

    size = tokenizers.Tokenizer.from_file(str(source / "tokenizer.json")).get_vocab_size()
    if size > vocab:
        sys.exit(f"{source}: its {size} ids do not fit in a vocabulary of {vocab}")
    for name in TOKENIZER_FILES:
        if (source / name).exists():
            shutil.copyfile(source / name, folder / name)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("shape", choices=sorted(SHAPES))
    parser.add_argument("folder", type=Path)
    parser.add_argument("--tokenizer", type=Path, help="folder with a tokenizer.json")
    parser.add_argument("--layers", type=int, help="fewer layers than the shape has")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    shape = SHAPES[options.shape]
    if options.layers is not None:
        shape = Shape(**{**shape.__dict__, "layers": options.layers})
    build(shape, options.folder, options.tokenizer, options.seed)


if __name__ == "__main__":
    main()
