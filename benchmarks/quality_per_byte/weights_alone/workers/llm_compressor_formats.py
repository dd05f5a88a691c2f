"""llm-compressor's recipes: ``REQUEST.json`` (`exchange`).

The model runs in torch in float32 with the values that llm-compressor gave it. Embedding and head
stay as they are (its default), bfloat16 in the file; being tied, they count once.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import llmcompressor
import torch
from datasets import Dataset
from exchange import Request, tensor_name
from llmcompressor.modifiers.gptq import GPTQModifier
from llmcompressor.modifiers.quantization import QuantizationModifier
from llmcompressor.modifiers.transform.awq import AWQModifier
from llmcompressor.modifiers.transform.smoothquant import SmoothQuantModifier
from llmcompressor.pipelines.cache import IntermediatesCache
from safetensors import safe_open
from transformers import AutoModelForCausalLM

EMBEDDING = "model.embed_tokens.weight"
LAYERS: dict[str, Any] = {"targets": "Linear", "ignore": ["lm_head"]}
#: Modifiers and whose numbers they are: with int8 activations those of an engine.
FORMATS: dict[str, tuple[Callable[[], list[Any]], str]] = {
    "W4A16 GPTQ": (lambda: [GPTQModifier(scheme="W4A16", **LAYERS)], "weights"),
    "W4A16 asym AWQ": (
        lambda: [AWQModifier(), QuantizationModifier(scheme="W4A16_ASYM", **LAYERS)], "weights"),
    "W8A8 SmoothQuant, GPTQ": (
        lambda: [SmoothQuantModifier(smoothing_strength=0.5),
                 GPTQModifier(scheme="W8A8", **LAYERS)],
        "engine"),
}  # fmt: skip


def stored(folder: Path) -> dict[str, list[Any]]:
    """Bytes in the files that it saved, by tensor; the tied head is in the embedding."""
    found: dict[str, list[Any]] = {}
    for path in folder.glob("*.safetensors"):
        with safe_open(path, "pt") as file:
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
        for name, tensor in tensors.items():
            module = name.rsplit(".", 1)[0]
            if module == "lm_head" and EMBEDDING in tensors:
                continue
            key = tensor_name(f"{module}.weight") or name
            size = tensor.numel() * tensor.element_size()
            if tensor.dtype == torch.float32:
                size //= 2  # the model is bfloat16; here it was read as float32
            entry = found.setdefault(key, [0, 0, ""])
            entry[1] += size
            shape = tensors.get(f"{module}.weight_shape")
            if name.endswith(("weight", "weight_packed")):
                values = int(shape.prod()) if shape is not None else tensor.numel()
                entry[0], entry[2] = values, str(tensor.dtype).removeprefix("torch.")
    return found


def make(request: Request, label: str) -> None:
    """Quantize, run, save, answer."""
    modifiers, numerics = FORMATS[label]
    model = AutoModelForCausalLM.from_pretrained(request.model, dtype=torch.float32)
    ids = request.calibration.tolist()
    samples = {"input_ids": ids, "attention_mask": [[1] * len(window) for window in ids]}
    llmcompressor.oneshot(
        model=model,
        dataset=Dataset.from_dict(samples),
        recipe=modifiers(),
        max_seq_length=len(ids[0]),
        num_calibration_samples=len(ids),
    )
    model.eval()
    with torch.inference_mode():
        request.write_logits(label, lambda x: model(torch.from_numpy(x), use_cache=False).logits)
    with tempfile.TemporaryDirectory() as folder:
        model.save_pretrained(folder, save_compressed=True)
        sizes = stored(Path(folder))
    about = {
        "stored": sizes,
        "version": f"llm-compressor {llmcompressor.__version__}",
        "numerics": numerics,
        "note": "embedding and head bfloat16"
        + ("; int8 activations, float KV" if numerics == "engine" else ""),
    }
    request.answer(label, about)


def main() -> None:
    """All formats."""
    torch.set_num_threads(1)
    if not torch.accelerator.is_available():
        # AWQ pins its inputs for copies to an accelerator, and raises where there is none.
        IntermediatesCache.pin_memory = lambda *_: None
    request = Request.of_command_line()
    formats: list[tuple[str, Callable[[str], None]]] = [
        (label, partial(make, request)) for label in FORMATS
    ]
    request.make_all(formats)


if __name__ == "__main__":
    main()
