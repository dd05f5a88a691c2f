"""The variants that are measured: every peer's formats, and the start of its worker."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

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
        rounded: Random weights are rounded to nearest where the recipe calibrates: GPTQ of a
            large model takes long, and what the weights are does not change the pace.
        recipe: optc's recipe, where the format is not its name.
        sets: Options of passes (``pass.option=value``) that are others than the recipe's.
        cast_at_load: The peer reads a float32 file and holds its weights in bf16.
    """

    peer: str
    format: str
    bits: int
    settings: str
    quality: str = ""
    rounded: bool = False
    recipe: str = ""
    sets: tuple[str, ...] = ()
    cast_at_load: bool = False

    @property
    def label(self) -> str:
        """``peer format``."""
        return f"{self.peer} {self.format}"


_OPTC = "defaults, all threads, prefix cache off"
_ROUNDED = f"{_OPTC}, weights rounded to nearest"
_LLAMA = "built for this CPU, all threads, n_ubatch 512, f16 KV, unified KV cache"
_IK_LLAMA = "built for this CPU, all threads, n_ubatch 512, f16 KV, repacked at load"
_GENAI = "accuracy_level 4, static batch"
_TORCH = "bf16, static cache, all threads"
_OPENVINO = "continuous batching pipeline, all threads, 2048 batched tokens, its default KV type"
_VLLM = "CPU build, all threads, prefix cache off, KV in bf16"
_CT2 = "static batch, all threads, KV in float32"

VARIANTS = (
    Variant("optc", "bf16-fused", 16, _OPTC),
    Variant("optc", "int8-fused", 8, _ROUNDED, rounded=True),
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
    Variant("torch.compile", "bf16", 16, _TORCH, cast_at_load=True),
    Variant("openvino-genai", "int8", 8, _OPENVINO),
    Variant("openvino-genai", "int4", 4, f"{_OPENVINO}, groups of 64", "int4 asym g64"),
    Variant("openvino-genai", "int4-g32", 4, f"{_OPENVINO}, groups of 32", "int4 asym g32"),
    Variant("vllm", "bf16", 16, _VLLM, cast_at_load=True),
    Variant("vllm", "W8A8", 8, f"{_VLLM}, int8 weights per channel, activations per token"),
    Variant("ctranslate2", "int8", 8, f"{_CT2}, int8_float32"),
)


def worker_command(variant: Variant, binaries: Path, path: Path, threads: int) -> list[str]:
    """The command that starts the worker of a converted model."""
    script = {
        "optc": "optc_worker.py",
        "llama.cpp": "llama_cpp_worker.py",
        ik_llama.NAME: "ik_llama_worker.py",
        "onnxruntime-genai": "genai_worker.py",
        "openvino-genai": "openvino_worker.py",
        "torch.compile": "torch_worker.py",
        "vllm": "vllm_worker.py",
        "ctranslate2": "ctranslate2_worker.py",
    }[variant.peer]
    arguments = {
        "optc": [str(threads)],
        "llama.cpp": [str(threads), str(threads)],
        ik_llama.NAME: [str(threads), str(threads), ik_llama.REVISION[:12]],
        "onnxruntime-genai": [],
        "openvino-genai": [str(threads)],
        "torch.compile": [str(threads)],
        "vllm": [str(threads)],
        "ctranslate2": [str(threads)],
    }[variant.peer]
    python = str(binaries / "python")
    return [python, str(HERE / "workers" / script), str(path), *arguments]
