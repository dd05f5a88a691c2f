"""Virtual environments of the peers, one each, under a work folder."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

#: What each environment installs, in order. torch first, so that a later resolve keeps it.
PACKAGES: dict[str, tuple[tuple[str, ...], ...]] = {
    "llama.cpp": (("llama-cpp-python", "gguf", "numpy", "safetensors"),),
    "onnxruntime-genai": (
        ("torch==2.13.0",),
        ("onnxruntime-genai", "onnx", "onnx_ir", "transformers"),
    ),
    "torch.compile": (("torch==2.13.0",), ("transformers", "accelerate")),
    "openvino-genai": (
        ("torch==2.13.0",),
        (
            "openvino-genai",
            "openvino-tokenizers",
            "nncf",
            "optimum",
            "requests",
            "transformers<5.6",
        ),
        # Its torchvision, which text models do not use, would replace torch by a CUDA build.
        ("--no-deps", "optimum-intel"),
    ),
}


def ensure(name: str, root: Path) -> Path:
    """The environment's folder of binaries, installed if it is not yet there."""
    folder = root / "env" / name
    stamp = folder / ".installed"
    if not stamp.exists():
        subprocess.run([sys.executable, "-m", "venv", str(folder)], check=True)
        # llama.cpp is compiled from its source archive for this machine's instruction set.
        settings = {**os.environ, "CMAKE_ARGS": "-DGGML_NATIVE=ON"}
        for packages in (("--upgrade", "pip"), *PACKAGES[name]):
            pip = [str(folder / "bin" / "python"), "-m", "pip", "install", "--quiet"]
            subprocess.run([*pip, *packages], check=True, env=settings, stdout=sys.stderr)
        stamp.touch()
    return folder / "bin"
