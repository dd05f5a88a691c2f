"""One row: the model pruned, its weights counted, its logits compared."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnx_ir as ir

from benchmarks.pruning.rows import Row
from benchmarks.quality_per_byte.evaluate import Evaluator
from optc.importer.import_model import import_model
from optc.ir.linear import find_linears
from optc.ir.pipeline import registry
from optc.ir.pipeline.entries import read_pipeline
from optc.proof.reference.blockwise import BlockwiseReference
from optc.runtime.executable.executable import Float32, Int32
from optc.system.hardware.target import usable_threads

_FIGURES = ("kl_mean", "kl_p99", "top1_agreement", "perplexity", "perplexity_ratio")


def measured(row: Row, evaluator: Evaluator, calibration: Path) -> dict[str, Any]:
    """The figures that are stated of a row.

    ``nonzero`` are the weights of linear layers, the head's too, that are there and not zero;
    ``seconds`` those of the passes, on a machine that may do other things, too.
    """
    model = import_model(evaluator.model).model
    text = {"text": str(calibration), "folder": str(evaluator.model)}
    entries = [
        {name: _with_text(name, options, text)}
        for entry in row.passes
        for name, options in entry.items()
    ]
    read_pipeline(["canonicalize"], registry).run(model)
    dense, start = _nonzero(model), time.perf_counter()
    read_pipeline(entries, registry).run(model)
    seconds = time.perf_counter() - start
    figures = evaluator.of_logits(logits(model, evaluator.windows[:, :-1]))
    ratio = figures["perplexity_ratio"]
    return {
        "method": row.method,
        "amount": row.amount,
        "passes": entries_without(entries, text),
        "nonzero": _nonzero(model),
        "nonzero_share": round(_nonzero(model) / dense, 4),
        **{name: float(f"{figures[name]:.5g}") for name in _FIGURES},
        "wanted_at_most": row.most,
        "reached": None if row.most is None else ratio <= row.most,
        "seconds": round(seconds, 1),
    }


def logits(model: ir.Model, windows: Int32) -> Iterator[Float32]:
    """Float32 logits [S, V] of each window [S], whatever the shapes of the layers are."""
    reference = BlockwiseReference(model, usable_threads())
    try:
        count, size = windows.shape
        hidden = reference.hidden_states(np.ascontiguousarray(windows)).reshape(count, size, -1)
        tiles = list(reference.tiles())
        for window in hidden:
            yield np.concatenate([reference.logits(window, tile) for tile in tiles], axis=1)
    finally:
        reference.close()


def entries_without(entries: list[dict[str, Any]], text: dict[str, str]) -> list[dict[str, Any]]:
    """The passes without where the text lies."""
    return [
        {name: {k: v for k, v in options.items() if k not in text}}
        for entry in entries
        for name, options in entry.items()
    ]


def _with_text(name: str, options: Any, text: dict[str, str]) -> dict[str, Any]:
    reads = text.keys() <= registry.passes()[name].__dataclass_fields__.keys()
    return {**options, **(text if reads else {})}


def _nonzero(model: ir.Model) -> int:
    total = 0
    for linear in find_linears(model):
        for start, stop in linear.weight.tiles():
            total += int(np.count_nonzero(linear.weight.read_rows(start, stop)))
    return total
