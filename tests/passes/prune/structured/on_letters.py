"""Passes that take structures out of a small model, with a text of letters."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx_ir as ir

from optc.ir.pipeline import registry
from optc.ir.pipeline.base import Pass
from optc.proof.reference.blockwise import BlockwiseReference

#: Tokens that the model is judged on: no letters of the text.
TOKENS = np.random.default_rng(5).integers(0, 26, (8, 64), np.int32)


def pruning(folder: Path, name: str, **options: object) -> Pass:
    """The pass on 32 windows of 64 letters."""
    sizes = {"windows": 32, "window_tokens": 64, "measured_windows": 2}
    text = {"text": str(folder / "text.txt"), "folder": str(folder)}
    return registry.passes()[name].from_options(sizes | text | options)


def hidden(model: ir.Model) -> np.ndarray:
    """What the head reads, [512, D]."""
    return BlockwiseReference(model, 1).run(TOKENS).copy()


def lost(model: ir.Model, original: ir.Model) -> float:
    """Mean square of what the head's input lost, over that of the input."""
    before = hidden(original)
    return float(np.mean((hidden(model) - before) ** 2) / np.mean(before**2))
