"""What is measured: every peer's formats, how each is converted and how its worker starts."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import yaml

from benchmarks.peers import ik_llama

HERE = Path(__file__).parent


@dataclass(frozen=True)
class Variant:
    """One row of the table.

    Attributes:
        peer: Name of the environment; ``optc`` is this one.
        format: The peer's own name of the weight format.
        bits: Nominal bits a weight, which rows are compared by.
        settings: How the peer runs: the fastest of what was tried.
        quality: How its points in the results of `benchmarks.quality_per_byte` begin, if not with
            the format's name.
        rounded: Weights are rounded to nearest where the recipe calibrates: GPTQ of a large model
            takes long, and what the weights are does not change the pace.
    """

    peer: str
    format: str
    bits: int
    settings: str
    quality: str = ""
    rounded: bool = False

    @property
    def label(self) -> str:
        """``peer format``."""
        return f"{self.peer} {self.format}"


_OPTC = "defaults, all threads, prefix cache off"
#: About as many as a recipe chooses that gives a tenth of the layers activations of more bits.
_WIDE_LAYERS = ("model.layers.[01].*",)
_ROUNDED = f"{_OPTC}, weights rounded to nearest"
_LLAMA = "built for this CPU, all threads, n_ubatch 512, f16 KV, unified KV cache"
_IK_LLAMA = "built for this CPU, all threads, n_ubatch 512, f16 KV, repacked at load"
_GENAI = "accuracy_level 4, static batch"
_TORCH = "bf16, static cache, all threads"
_OPENVINO = "continuous batching pipeline, all threads, 2048 batched tokens, its default KV type"

VARIANTS = (
    Variant("optc", "bf16-fused", 16, _OPTC),
    Variant("optc", "int8-fused", 8, _OPTC),
    Variant("optc", "int8-a16", 8, _ROUNDED, rounded=True),
    Variant("optc", "int6-fused", 6, _ROUNDED, rounded=True),
    Variant("optc", "int4-fast", 4, _OPTC),
    Variant("optc", "int4-fused", 4, _ROUNDED, rounded=True),
    Variant("optc", "int3-fused", 3, _ROUNDED, rounded=True),
    Variant("optc", "int2-fused", 2, _ROUNDED, rounded=True),
    Variant("llama.cpp", "BF16", 16, _LLAMA),
    Variant("llama.cpp", "Q8_0", 8, _LLAMA),
    Variant("llama.cpp", "Q6_K", 6, _LLAMA),
    Variant("llama.cpp", "Q5_K_M", 5, _LLAMA),
    Variant("llama.cpp", "Q4_0", 4, _LLAMA),
    Variant("llama.cpp", "Q4_K_M", 4, _LLAMA),
    Variant("llama.cpp", "IQ4_XS", 4, _LLAMA),
    Variant("llama.cpp", "Q3_K_M", 3, _LLAMA),
    Variant("llama.cpp", "IQ3_S", 3, _LLAMA),
    Variant("llama.cpp", "IQ3_XXS", 3, _LLAMA),
    Variant(ik_llama.NAME, "Q8_0", 8, _IK_LLAMA),
    Variant(ik_llama.NAME, "IQ6_K", 6, _IK_LLAMA),
    Variant(ik_llama.NAME, "IQ5_K", 5, _IK_LLAMA),
    Variant(ik_llama.NAME, "IQ5_KS", 5, _IK_LLAMA),
    Variant(ik_llama.NAME, "Q4_0", 4, _IK_LLAMA),
    Variant(ik_llama.NAME, "IQ4_K", 4, _IK_LLAMA),
    Variant(ik_llama.NAME, "IQ4_KS", 4, _IK_LLAMA),
    Variant(ik_llama.NAME, "IQ4_KSS", 4, _IK_LLAMA),
    Variant(ik_llama.NAME, "IQ3_K", 3, _IK_LLAMA),
    Variant(ik_llama.NAME, "IQ3_KS", 3, _IK_LLAMA),
    Variant(ik_llama.NAME, "IQ2_KL", 2, _IK_LLAMA),
    Variant("onnxruntime-genai", "int8", 8, f"{_GENAI}, blocks of 128", "int8 RTN b128"),
    Variant("onnxruntime-genai", "int4", 4, f"{_GENAI}, blocks of 32", "int4 RTN b32"),
    Variant("torch.compile", "bf16", 16, _TORCH),
    Variant("openvino-genai", "int8", 8, _OPENVINO),
    Variant("openvino-genai", "int4", 4, f"{_OPENVINO}, groups of 64", "int4 asym g64"),
    Variant("openvino-genai", "int4-g32", 4, f"{_OPENVINO}, groups of 32", "int4 asym g32"),
)


#: Peers that read GGUF, and the folder that theirs share.
_GGUF = {"llama.cpp": "gguf", ik_llama.NAME: "ik-gguf"}
#: Files that hold weights: optc's and OpenVINO's, llama.cpp's, onnxruntime-genai's, torch's.
_WEIGHT_FILES = (".bin", ".gguf", ".data", ".safetensors")


@dataclass(frozen=True)
class Converted:
    """A converted model: where it lies, how long it took, what it weighs.

    ``weight_bytes`` are those of the files with weights, quantization parameters included.
    """

    path: Path
    seconds: float
    bytes_on_disk: int
    weight_bytes: int


def _commands(variant: Variant, binaries: Path, model: Path, output: Path) -> list[list[str]]:
    python = str(binaries / "python")
    if variant.peer == "optc":
        # Gates are not part of a conversion time that peers could be compared by.
        recipe = _rounding(variant.format, output) if variant.rounded else variant.format
        return [[str(binaries / "optc"), "compile", str(model), "--recipe", recipe, "-o",
                 str(output), "--no-gates", "--force"]]  # fmt: skip
    if variant.peer == "llama.cpp":
        formats = [] if variant.format == "BF16" else [variant.format]
        return [[python, str(HERE / "to_gguf.py"), str(model), str(output), *formats]]
    if variant.peer == ik_llama.NAME:
        quantize = str(ik_llama.tools(binaries) / "llama-quantize")
        base, file = output / "BF16.gguf", output / f"{variant.format}.gguf"
        return [[python, str(HERE / "to_gguf.py"), str(model), str(output)],
                [quantize, str(base), str(file), variant.format]]  # fmt: skip
    if variant.peer == "onnxruntime-genai":
        # int8 activations; whole-block sums of 128 are the fastest kernels at 8 bits.
        block = {"int4": 32, "int8": 128}[variant.format]
        options = ["accuracy_level=4", f"block_size={block}"]
        return [[python, "-m", "onnxruntime_genai.models.builder", "-i", str(model), "-o",
                 str(output), "-p", variant.format, "-e", "cpu", "-c", str(output / "cache"),
                 "--extra_options", *options]]  # fmt: skip
    if variant.peer == "torch.compile":
        return []
    weights = ["--weight-format", variant.format.removesuffix("-g32")]
    if weights[1] == "int4":
        group = "32" if variant.format.endswith("-g32") else "64"
        weights += ["--group-size", group, "--ratio", "1.0"]
    return [[str(binaries / "optimum-cli"), "export", "openvino", "-m", str(model), "--task",
             "text-generation-with-past", *weights, str(output)]]  # fmt: skip


def _rounding(name: str, output: Path) -> str:
    """A file beside ``output`` with the recipe ``name``: weights are rounded to nearest, and layers
    named where they would be chosen by what they lose."""
    recipe = yaml.safe_load((HERE.parents[1] / "recipes" / f"{name}.yaml").read_text())
    recipe["pipeline"].remove("propagate-errors")
    options = {key: one[key] for one in recipe["pipeline"] if isinstance(one, dict) for key in one}
    del options["quantize-weights"]["method"]
    if options.get("allocate-activations", {}).get("budget", 2) < 2:
        options["quantize-weights"]["activation_layers"] = list(_WIDE_LAYERS)
        recipe.pop("for_engines")  # CUDA engines would have no layers to name
    file = output.with_name(f"{name}-rounded.yaml")
    file.write_text(yaml.safe_dump(recipe, sort_keys=False))
    return str(file)


def convert(variant: Variant, binaries: Path, model: Path, root: Path) -> Converted:
    """Convert ``model`` for a variant, once; later calls find the result."""
    folder = _GGUF.get(variant.peer, f"{variant.peer}-{variant.format}")
    output = root / "models" / model.name / folder
    stamp = output.with_name(f"{folder}-{variant.format}.seconds")
    if not stamp.exists():
        output.parent.mkdir(parents=True, exist_ok=True)
        start = time.perf_counter()
        for command in _commands(variant, binaries, model, output):
            subprocess.run(command, check=True, stdout=sys.stderr)
        stamp.write_text(str(time.perf_counter() - start))
    path = model if variant.peer == "torch.compile" else output
    if variant.peer in _GGUF:
        path = output / f"{variant.format}.gguf"
    files = [path] if path.is_file() else [f for f in path.rglob("*") if f.is_file()]
    weights = [f for f in files if f.suffix in _WEIGHT_FILES and "tokenizer" not in f.name]
    return Converted(path, float(stamp.read_text()), _bytes(files), _bytes(weights))


@contextmanager
def fresh_copy(model: Converted, root: Path) -> Iterator[Path]:
    """A copy of a model's files, so that their place in memory is another one than last time's."""
    with tempfile.TemporaryDirectory(dir=root) as folder:
        copy = Path(folder) / model.path.name
        if model.path.is_file():
            shutil.copy(model.path, copy)
        else:
            shutil.copytree(model.path, copy)
        os.sync()  # nothing is written while others are measured
        yield copy


def _bytes(files: list[Path]) -> int:
    return sum(f.stat().st_size for f in files)


def worker_command(variant: Variant, binaries: Path, path: Path, threads: int) -> list[str]:
    """How to start the worker of a converted model."""
    script = {
        "optc": "optc_worker.py",
        "llama.cpp": "llama_cpp_worker.py",
        ik_llama.NAME: "ik_llama_worker.py",
        "onnxruntime-genai": "genai_worker.py",
        "openvino-genai": "openvino_worker.py",
        "torch.compile": "torch_worker.py",
    }[variant.peer]
    arguments = {
        "optc": [str(threads)],
        "llama.cpp": [str(threads), str(threads)],
        ik_llama.NAME: [str(threads), str(threads), ik_llama.REVISION[:12]],
        "onnxruntime-genai": [],
        "openvino-genai": [str(threads)],
        "torch.compile": [str(threads)],
    }[variant.peer]
    python = str(binaries / "python")
    return [python, str(HERE / "workers" / script), str(path), *arguments]
