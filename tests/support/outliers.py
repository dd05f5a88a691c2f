"""A small model with planted outliers, and what passes over a text of letters lose on it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx_ir as ir

from optc.ir.pipeline import registry
from optc.ir.pipeline.base import PassReport
from optc.ir.pipeline.entries import read_pipeline
from optc.passes.quantize.folding.fold import fold
from optc.passes.quantize.folding.places import NORM, find_places
from optc.proof.reference.calibration import CalibrationStore
from tests.support.dense_models import dense_model
from tests.support.ir_text import Array
from tests.support.ragged import run_dense

TOKENS = np.random.default_rng(7).integers(0, 26, 60).tolist()
INT8 = {"quantize-weights": {"bits": 8, "head": False, "embedding": False}}
INT4: dict[str, dict[str, Any]] = {
    "quantize-weights": {
        "bits": 4,
        "group_size": 32,
        "symmetric": False,
        "head": False,
        "embedding": False,
    }
}


def planted() -> ir.Model:
    """A model that computes the same with outliers: a few channels behind norms 24 times larger."""
    model, rng = dense_model(2), np.random.default_rng(3)
    for place in find_places(model, PassReport()):
        if place.kind == NORM:
            scale = np.ones(len(place.channels))
            scale[rng.choice(len(scale), 2, replace=False)] = 1 / 24
            fold(place, scale, CalibrationStore())
    return model


def after(model: ir.Model, folder: Path, *entries: Any) -> Array:
    """Logits behind passes; those that read a text have theirs."""
    read = {"text": str(folder / "text.txt"), "folder": str(folder)}
    sizes = {"windows": 48, "window_tokens": 64}
    texts = {
        "calibrate": {"channels": True, "hessians": True, **read, **sizes},
        "propagate-errors": read | sizes,
        "balance-keys": read | sizes,
    }
    given = [
        {entry: texts[entry]} if isinstance(entry, str) and entry in texts else entry
        for entry in entries
    ]
    pipeline = read_pipeline(given, registry)
    pipeline.run(model)
    return run_dense(model, TOKENS)


def decibels(logits: Array) -> float:
    """Signal to noise against the float32 model."""
    want = run_dense(dense_model(2), TOKENS)
    return float(10 * np.log10(np.sum(want**2) / np.sum((logits - want) ** 2)))
