"""ik_llama.cpp from its source: libraries, quantizing tools, and a binding for Python.

It is in no package registry. ``IK_LLAMA_SOURCE`` names a folder with the source; without it git
fetches `REVISION` from `URL`.
"""

from __future__ import annotations

import os
from pathlib import Path

from benchmarks.peers.tools import run

#: Of the environment, and in tables.
NAME = "ik_llama.cpp"
URL = "https://github.com/ikawrakow/ik_llama.cpp"
REVISION = "8337e4cd3861406fc04e0854b1409cd1b027fbc9"
TARGETS = ("llama", "llama-quantize", "llama-imatrix")
BINDING = Path(__file__).parent / "workers" / "ik_llama_binding.py"


def build(folder: Path) -> None:
    """Build into ``folder``, an environment that has cffi, for this machine's instruction set."""
    folder = folder.resolve()  # programs find their libraries by it
    source, built = _source(folder), folder / "build"
    settings = ["-DCMAKE_BUILD_TYPE=Release", "-DGGML_NATIVE=ON", "-DBUILD_SHARED_LIBS=ON",
                "-DLLAMA_CURL=OFF", "-DLLAMA_BUILD_TESTS=OFF", "-DLLAMA_BUILD_SERVER=OFF",
                # Attention over quantized KV is not measured, and takes long to compile.
                "-DGGML_IQK_FA_ALL_QUANTS=OFF"]  # fmt: skip
    python = str(folder / "bin" / "python")
    for command in (
        ["cmake", "-S", str(source), "-B", str(built), *settings],
        ["cmake", "--build", str(built), "--parallel", "2", "--target", *TARGETS],
        [python, "-m", "pip", "install", "--quiet", str(source / "gguf-py")],
        [python, str(BINDING), str(source), str(built)],
    ):
        run(command)


def _source(folder: Path) -> Path:
    if "IK_LLAMA_SOURCE" in os.environ:
        return Path(os.environ["IK_LLAMA_SOURCE"]).resolve()
    source = folder / "source"
    git = ["git", "-C", str(source)]
    source.mkdir(exist_ok=True)
    for command in (
        [*git, "init", "--quiet"],
        [*git, "fetch", "--quiet", "--depth", "1", URL, REVISION],
        [*git, "checkout", "--quiet", "FETCH_HEAD"],
    ):
        run(command)
    return source


def tools(binaries: Path) -> Path:
    """The folder of the programs that `build` made, by an environment's folder of binaries."""
    return binaries.parent / "build" / "bin"
