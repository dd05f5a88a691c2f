"""Float weights of a model that there is only as a GGUF file: dequantized, in a folder.

Every tool that is compared starts from this folder, so that all quantize the same weights.
transformers dequantizes, which none of the compared tools does.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

from benchmarks.inputs.real_models.catalogue import model_of
from benchmarks.inputs.real_models.fetch import STATEMENT, real_model, state, whole_folder
from optc.errors import InputError
from optc.importer.gguf.folder import gguf_folder
from optc.system.cache_folder import cache_folder

#: Raised if what such a folder holds changes.
_LAYOUT = 2


def float_folder(name: str, folder: Path | None = None) -> Path:
    """A Hugging Face folder of a GGUF model's dequantized weights, float32, made once.

    Args:
        name: Of a model whose form is ``gguf``.
        folder: Where it goes; None is the user's cache. A complete one is taken as it is.

    Raises:
        InputError, UnavailableError: As `real_model`; or the model is no GGUF file.
    """
    model = model_of(name)
    file_name = model.gguf
    target = folder or cache_folder() / "real-models" / f"{name}-float32"
    about = {"name": name, "licence": model.licence, "note": model.note, "layout": _LAYOUT}
    if _stated(target) == about:
        return target
    if folder is not None and folder.exists() and any(folder.iterdir()):
        raise InputError(
            f"the folder is not empty, and is no complete {name} in float32",
            where=str(folder),
            hint="name another folder, or remove this one",
        )
    source = real_model(name) / file_name
    with whole_folder(target) as made:
        dequantize(source, made)
        state(made, about)
    return target


def dequantize(source: Path, folder: Path) -> None:
    """Write weights, config and tokenizer of a GGUF file into ``folder``.

    Raises:
        InputError, UnsupportedError, UnavailableError: As `gguf_folder`.
    """
    import torch
    from safetensors.torch import save_file
    from transformers import AutoModelForCausalLM

    made = gguf_folder(source)
    model = AutoModelForCausalLM.from_pretrained(
        made, gguf_file=source.name, dtype=torch.float32, local_files_only=True
    )
    # A tied head is the embedding: it is in here once.
    weights = {name: value.detach().contiguous() for name, value in model.named_parameters()}
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    for file in (*made.glob("*.json"), *made.glob("*.jinja")):
        shutil.copy(file, folder / file.name)
    _change(folder / "config.json", dtype="float32")
    if (folder / "tokenizer_config.json").exists():
        # the name that older releases of transformers know, too: some tools need one
        _change(folder / "tokenizer_config.json", tokenizer_class="PreTrainedTokenizerFast")


def _change(file: Path, **values: str) -> None:
    content = json.loads(file.read_text("utf-8"))
    file.write_text(json.dumps({**content, **values}, indent=2) + "\n", "utf-8")


def _stated(folder: Path) -> dict[str, Any] | None:
    try:
        found: dict[str, Any] = json.loads((folder / STATEMENT).read_text("utf-8"))
    except (OSError, ValueError):
        return None
    found.pop("files")
    return found
