"""Medusa heads with seeded weights, as files."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
from safetensors.numpy import save_file

from tests.support.oracle import Array

RATES = (0.5, 0.2, 0.1)


def write_heads(folder: Path, count: int, width: int) -> list[tuple[Array, Array]]:
    """Write ``count`` heads of ``width``; returns their weights [D, D] and biases [D]."""
    random = np.random.default_rng(5)
    tensors: dict[str, Array] = {}
    blocks = []
    for index in range(count):
        weight = (random.standard_normal((width, width)) / np.sqrt(width)).astype(np.float32)
        bias = random.standard_normal(width).astype(np.float32)
        tensors[f"{index}.0.linear.weight"], tensors[f"{index}.0.linear.bias"] = weight, bias
        blocks.append((weight, bias))
    save_file(tensors, folder / "medusa_heads.safetensors")
    config = {"accept_rates": [[rate / (head + 1) for rate in RATES] for head in range(count)]}
    (folder / "config.json").write_text(json.dumps(config))
    return blocks
