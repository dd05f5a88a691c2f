"""Random models of transformers' tasks: compiled in float32 and int8, beside PyTorch."""

from __future__ import annotations

import json
import multiprocessing
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import torch
import transformers

import optc
from benchmarks.families.tiny import shrunk
from optc.importer.tensors.encoder import _Pixels, _Texts
from optc.system.sources.dim import Dim

#: Tables of transformers by task, with the recipe of int8 and the input of its models.
TASKS = {
    "image classification": ("MODEL_FOR_IMAGE_CLASSIFICATION_MAPPING_NAMES", "vision-int8"),
    "semantic segmentation": ("MODEL_FOR_SEMANTIC_SEGMENTATION_MAPPING_NAMES", "vision-int8"),
    "depth": ("MODEL_FOR_DEPTH_ESTIMATION_MAPPING_NAMES", "vision-int8"),
    "masked words": ("MODEL_FOR_MASKED_LM_MAPPING_NAMES", "encoder-int8"),
    "speech to letters": ("MODEL_FOR_CTC_MAPPING_NAMES", "encoder-int8"),
}
#: Sizes of batches at which outputs are compared.
BATCHES = (1, 2, 5)
#: What makes configurations of vision small.
_SMALL: dict[str, Any] = {
    "image_size": 64,
    "hidden_size": 64,
    "num_attention_heads": 4,
    "intermediate_size": 96,
    "num_hidden_layers": 2,
    "hidden_dropout_prob": 0.0,
}


class _Sound(torch.nn.Module):
    """A model of transformers over sound."""

    def __init__(self, model: torch.nn.Module, name: str) -> None:
        super().__init__()
        self.model, self.name = model, name

    def forward(self, sound: torch.Tensor) -> dict[str, torch.Tensor]:
        found = self.model(**{self.name: sound})
        return {key: one for key, one in found.items() if isinstance(one, torch.Tensor)}


def kinds() -> list[tuple[str, str, str]]:
    """Task, type and class of every architecture, each type once a task."""
    from transformers.models.auto import modeling_auto

    found = []
    for task, (table, _) in TASKS.items():
        for kind, name in getattr(modeling_auto, table).items():
            found.append((task, kind, name if isinstance(name, str) else name[0]))
    return found


def measured(task: str, kind: str, name: str, timeout_s: float) -> dict[str, Any]:
    """The row of an architecture, made by a child process that may take so long."""
    with tempfile.TemporaryDirectory(prefix="optc-models-") as folder:
        kept = Path(folder) / "row.json"
        fork = multiprocessing.get_context("fork")
        child = fork.Process(target=_prove, args=(task, kind, name, Path(folder), kept))
        child.start()
        child.join(timeout_s)
        late = child.is_alive()
        if late:
            child.kill()
            child.join()
        row = {"task": task, "type": kind, "class": name, "trying": "start"}
        if kept.exists():
            row |= json.loads(kept.read_text())
        stage = row.pop("trying", "")
        if stage and "error" not in row:
            row["error"] = f"{stage}: {'took too long' if late else f'exit code {child.exitcode}'}"
        return row


def _prove(task: str, kind: str, name: str, folder: Path, kept: Path) -> None:
    row: dict[str, Any] = {}

    def trying(stage: str) -> None:
        row["trying"] = stage
        kept.write_text(json.dumps(row))

    try:
        trying("build")
        module, args, dynamic = _module(kind, name)
        row["parameters"] = sum(one.numel() for one in module.parameters())
        for recipe in ("tensors-fp32", TASKS[task][1]):
            trying(recipe)
            row[recipe] = _compared(module, args, dynamic, recipe, folder)
        trying("")
    except Exception as error:  # noqa: BLE001 - whatever an architecture raises is its row's reason
        text = " ".join(str(error).split())
        row["error"] = f"{row['trying']}: {type(error).__name__}: {text}"[:400]
        trying("")


def _module(kind: str, name: str) -> tuple[Any, tuple[Any, ...], dict[str, Any]]:
    """A module over tensors, an example of its arguments, and its dynamic dimensions."""
    torch.manual_seed(0)
    config_class = transformers.CONFIG_MAPPING[kind]
    kind_class = getattr(transformers, name)
    try:
        config = shrunk(
            config_class, {k: v for k, v in _SMALL.items() if hasattr(config_class(), k)}
        )
        model = kind_class(config).eval()
    except Exception:  # noqa: BLE001 - sizes hang together in ways of their own: as published, then
        config = config_class()
        model = kind_class(config).eval()
    batch = Dim("batch", 1, 64)
    main = model.main_input_name
    if main == "pixel_values":
        size = getattr(config, "image_size", 64) or 64
        height, width = size if isinstance(size, list | tuple) else (size, size)
        x = torch.randn(2, getattr(config, "num_channels", 3), int(height), int(width))
        return _Pixels(model), (x,), {"pixel_values": {0: batch}}
    if main == "input_ids":
        ids = torch.randint(4, min(100, config.get_text_config().vocab_size), (2, 11))
        mask = torch.ones_like(ids)
        dynamic = {one: {0: batch} for one in ("input_ids", "attention_mask")}
        return _Texts(model), (ids, mask), dynamic
    if main in ("input_values", "input_features"):
        x = torch.randn(2, 4000) if main == "input_values" else torch.randn(2, 64, _mels(config))
        return _Sound(model, main), (x,), {"sound": {0: batch}}
    raise ValueError(f"its input is {main}")


def _mels(config: Any) -> int:
    return int(
        getattr(config, "num_mel_bins", 0) or getattr(config, "feature_projection_input_dim", 80)
    )


def _compared(
    module: Any, args: tuple[Any, ...], dynamic: dict[str, Any], recipe: str, folder: Path
) -> dict[str, Any]:
    """Largest error relative to the outputs' largest value, and least cosine, over all batches."""
    made = optc.compile(
        module, recipe, folder / recipe, args=args, dynamic=dynamic, gate=["none"], force=True
    )
    error, cosine = 0.0, 1.0
    with optc.load_tensors(made.path) as engine:
        for batch in BATCHES:
            torch.manual_seed(batch)
            call = [_other(one, batch) for one in args]
            with torch.no_grad():
                wanted = module(*call)
            found = engine(*[one.numpy() for one in call])
            ours = [array for array in found.values() if array.dtype.kind == "f"]
            theirs = [one.numpy() for one in wanted.values() if one.is_floating_point()]
            for a, b in zip(ours, theirs, strict=True):
                scale = max(float(np.abs(b).max()), 1e-30)
                error = max(error, float(np.abs(a - b).max()) / scale)
                norms = float(np.linalg.norm(a.ravel()) * np.linalg.norm(b.ravel()))
                cosine = min(cosine, float(a.ravel() @ b.ravel()) / max(norms, 1e-30))
    return {"error": error, "cosine": cosine, "passes": [one.count for one in made.manifest.passes]}


def _other(example: Any, batch: int) -> Any:
    """Another input such as the example, of another batch."""
    shape = (batch, *example.shape[1:])
    if example.is_floating_point():
        return torch.randn(shape)
    if int(example.max()) <= 1:
        return torch.ones(shape, dtype=example.dtype)
    return torch.randint(4, int(example.max()) + 1, shape)
