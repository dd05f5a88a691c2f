"""Medusa heads and layers that draft by hidden states, with seeded weights, as files."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import onnx_ir as ir
from safetensors.numpy import save_file

from optc.compiling.drafts.layer_skip import cut_behind
from optc.ir.tensors import model_tensors
from optc.proof.reference.partition import partition
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


def layer_shapes(model: ir.Model) -> dict[str, tuple[int, ...]]:
    """Shapes of the tensors of a layer for ``model``, in dense form."""
    cut = model.clone()
    parts = partition(cut)
    cut_behind(cut, parts, 1, "test")
    shared = (parts.embedding, parts.head.inputs[1])
    own = [one for one in model_tensors(cut) if not set(shared) & set(one.initializers)]
    size = int(parts.embedding.shape[1])  # type: ignore[index, arg-type]
    return {one.name: one.shape for one in own} | {
        "eagle.fc.weight": (size, 2 * size),
        "eagle.embedding_norm.weight": (size,),
        "eagle.feature_norm.weight": (size,),
    }


def write_layer(folder: Path, model: ir.Model, seed: int = 3) -> dict[str, Array]:
    """Write a layer for ``model``, in dense form, into ``folder``; returns its tensors."""
    return write_tensors(folder, layer_shapes(model), seed)


def write_tensors(
    folder: Path, shapes: Mapping[str, tuple[int, ...]], seed: int = 3
) -> dict[str, Array]:
    """Write seeded tensors of these shapes: matrices that keep the size of what they multiply,
    vectors around one."""
    random = np.random.default_rng(seed)
    tensors: dict[str, Array] = {}
    for name, shape in shapes.items():
        values = random.standard_normal(shape)
        scaled = values / np.sqrt(shape[1]) if len(shape) > 1 else 1 + 0.2 * values
        tensors[name] = scaled.astype(np.float32)
    folder.mkdir(parents=True, exist_ok=True)
    save_file(tensors, folder / "eagle.safetensors")
    (folder / "config.json").write_text(json.dumps({"measured": {}}))
    return tensors
