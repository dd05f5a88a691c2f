"""Adapters of noise for the linear layers that an artifact lets be adapted."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import safetensors.numpy

from optc.runtime.executable.adapter_spec import AdapterSpec

#: Rank of the adapters, and how large their noise is: enough to change what comes out.
_RANK, _SCALE = 4, 0.05


def write_adapters(spec: AdapterSpec | None, folder: Path) -> dict[str, Path]:
    """Folders of as many adapters as there is room for, two at most; none where there is none."""
    if spec is None:
        return {}
    found = {}
    for number in range(min(spec.max, 2)):
        name = f"noise{number}"
        found[name] = _write(spec, folder / name, np.random.default_rng(number))
    return found


def _write(spec: AdapterSpec, folder: Path, noise: np.random.Generator) -> Path:
    folder.mkdir()
    rank = min(_RANK, spec.rank)
    tensors = {}
    for module in spec.modules:
        for part in module.parts:
            layer = "base_model.model." + part.name.removesuffix(".weight")
            down = noise.standard_normal((rank, module.k)) * _SCALE
            up = noise.standard_normal((part.source_rows, rank)) * _SCALE
            tensors[f"{layer}.lora_A.weight"] = down.astype(np.float32)
            tensors[f"{layer}.lora_B.weight"] = up.astype(np.float32)
    config = {"peft_type": "LORA", "r": rank, "lora_alpha": rank}
    (folder / "adapter_config.json").write_text(json.dumps(config))
    safetensors.numpy.save_file(tensors, folder / "adapter_model.safetensors")
    return folder
