"""Squared error of a model's quantized weights, by how groups are quantized.

    python -m benchmarks.proof.weight_error MODEL [--json FILE]

Of every matrix of a Hugging Face model's layers: the error of 4-bit groups of 32 relative to the
weights' own squares, averaged over matrices, and over that of float16 scales with zero points.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import numpy as np
from safetensors import safe_open

from optc.passes.numerics.affine import dequantize_rows, quantize_rows
from optc.passes.numerics.scheme import Scheme

GROUP = 32
SCHEMES = {
    "float scales, zero points": Scheme(4, GROUP, False),
    "integer scales": Scheme(4, GROUP, False, integer_scales=True),
    "float scales, symmetric": Scheme(4, GROUP, True),
}


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(prog="benchmarks.proof.weight_error", description=__doc__)
    parser.add_argument("model", type=Path)
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    errors: dict[str, list[float]] = {name: [] for name in SCHEMES}
    with safe_open(args.model / "model.safetensors", "pt") as file:
        for key in file.keys():  # noqa: SIM118 - no mapping
            tensor = file.get_tensor(key)
            if tensor.ndim != 2 or "layers." not in key or tensor.shape[1] % GROUP:
                continue
            rows = tensor.float().numpy()
            for name, scheme in SCHEMES.items():
                lost = dequantize_rows(quantize_rows(rows, scheme), GROUP) - rows
                errors[name].append(float(np.square(lost).sum() / np.square(rows).sum()))
    means = {name: float(np.mean(found)) for name, found in errors.items()}
    first = next(iter(means.values()))
    found = [
        {"scheme": name, "relative_squared_error": mean, "ratio": round(mean / first, 3)}
        for name, mean in means.items()
    ]
    print(json.dumps(found, indent=1))
    if args.json:
        args.json.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
