"""Int8 weights per output channel for vLLM: ``FOLDER OUTPUT``, in the format of compressed-tensors.

Weights of the layers' matrices are rounded to nearest, symmetric; vLLM rounds activations per
token as it runs. Embedding, head and norms stay in bfloat16. Format: int-quantized
(https://github.com/neuralmagic/compressed-tensors). Runs in vLLM's environment.
"""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file

_WEIGHTS: dict[str, Any] = {
    "num_bits": 8,
    "type": "int",
    "symmetric": True,
    "strategy": "channel",
    "dynamic": False,
}
_ACTIVATIONS: dict[str, Any] = {
    "num_bits": 8,
    "type": "int",
    "symmetric": True,
    "strategy": "token",
    "dynamic": True,
}
_CONFIG = {
    "quant_method": "compressed-tensors",
    "format": "int-quantized",
    "ignore": ["lm_head"],
    "config_groups": {
        "group_0": {
            "targets": ["Linear"], "weights": _WEIGHTS, "input_activations": _ACTIVATIONS,
        }
    },
}  # fmt: skip


def quantized(weight: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Int8 values [N, K] and scales bfloat16 [N, 1] of a float weight."""
    scales = (weight.abs().amax(dim=1, keepdim=True) / 127).clamp_min(1e-8).bfloat16()
    values = (weight / scales.float()).round().clamp(-127, 127).to(torch.int8)
    return values, scales


def main() -> None:
    source, output = Path(sys.argv[1]), Path(sys.argv[2])
    output.mkdir(parents=True, exist_ok=True)
    tensors: dict[str, torch.Tensor] = {}
    for file in sorted(source.glob("*.safetensors")):
        for name, weight in load_file(file).items():
            if weight.ndim == 2 and ".layers." in name:
                values, scales = quantized(weight.float())
                tensors[name], tensors[f"{name}_scale"] = values, scales
            else:
                tensors[name] = weight.bfloat16()
    for file in (*source.glob("*.json"), *source.glob("*.jinja")):
        shutil.copy(file, output / file.name)
    config = json.loads((source / "config.json").read_text())
    config |= {"dtype": "bfloat16", "torch_dtype": "bfloat16", "quantization_config": _CONFIG}
    (output / "config.json").write_text(json.dumps(config, indent=1))
    save_file(tensors, output / "model.safetensors", metadata={"format": "pt"})


if __name__ == "__main__":
    main()
