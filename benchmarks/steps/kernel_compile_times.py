"""Processor seconds in which kernels of each kind compile, one by one, without the cache.

python -m benchmarks.steps.kernel_compile_times [--target native] [--json FILE]
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from pathlib import Path
from typing import Any

from optc.backends.tvm.compiling.emit import make_kernel
from optc.backends.tvm.compiling.kernel_objects import KernelObjects
from optc.backends.tvm.isa import isa_of
from optc.system.hardware.target import parse_target

_HEADS = {"heads": 6, "kv_heads": 2, "key_dim": 64, "value_dim": 64, "scale": 0.125}
_SHAPE = {"n": 1024, "k": 384}
_EXPERTS = {**_SHAPE, "experts": 8, "chosen": 2}
KERNELS: dict[str, tuple[str, dict[str, Any]]] = {
    "int8": ("int_matmul", {**_SHAPE}),
    "int4, float scales": (
        "int_matmul",
        {**_SHAPE, "bits": 4, "group_size": 32, "asymmetric": True},
    ),
    **{f"int{bits}": ("two_level_matmul", {**_SHAPE, "bits": bits}) for bits in (2, 3, 4, 5, 6)},
    "sparse int8": ("sparse_matmul", {**_SHAPE}),
    "float32": ("float_matmul", {**_SHAPE}),
    "experts, int8": ("int_experts", {**_EXPERTS}),
    "experts, int4": ("two_level_experts", {**_EXPERTS, "bits": 4}),
    "experts, float32": ("float_experts", {**_EXPERTS}),
    "attention, float32": ("paged_attention", {**_HEADS}),
    "attention, int8": ("paged_attention", {**_HEADS, "kv_dtype": "int8", "query_bits": 8}),
    "attention, int4": ("paged_attention", {**_HEADS, "kv_dtype": "int4", "query_bits": 8}),
    "attention, int4 and latest": (
        "paged_attention",
        {
            **_HEADS,
            "kv_dtype": "int4",
            "query_bits": 8,
            "recent": 32,
            "recent_group": 1,
            "groups": 2,
        },
    ),
    "sampling": ("sampling", {"vocab": 4096}),
    "norm": ("rms_norm", {"width": 384, "epsilon": 1e-5}),
}


def main() -> None:
    """Compile all and print a line for each."""
    parser = argparse.ArgumentParser(prog="benchmarks.steps.kernel_compile_times")
    parser.add_argument("--target", default="native")
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    isa, found = isa_of(parse_target(args.target)), {}
    with tempfile.TemporaryDirectory() as folder:
        objects = KernelObjects(isa, Path(folder))
        objects.object("first", make_kernel("sampling", {"vocab": 64}, isa))  # LLVM starts
        for name, (kernel, config) in KERNELS.items():
            if kernel == "sparse_matmul" and not isa.expands:
                continue
            began = time.process_time()
            objects.object(name, make_kernel(kernel, config, isa))
            found[name] = round(time.process_time() - began, 2)
            print(f"{name:28} {found[name]:6.2f} s", flush=True)
    if args.json:
        args.json.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
