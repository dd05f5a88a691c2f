"""The layers of the trained example, what their inputs are like, and what rounding them loses."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from benchmarks.proof.numpy_llama import FakeQuant, NumpyLlama, log_softmax, read_tensors
from benchmarks.quality_per_byte.evaluate import windows_of
from optc.importer.import_model import import_model
from optc.ir.pipeline import registry
from optc.ir.pipeline.entries import read_pipeline
from optc.passes.numerics.statistics import INPUT_HESSIAN
from optc.passes.quantize.budget.groups import groups_of
from optc.passes.quantize.budget.sensitivity import note_hessians
from optc.proof.reference.calibration import CalibrationStore

ROOT = Path(__file__).resolve().parents[3]
MODEL = ROOT / "examples/models/pycode"
CALIBRATION = ROOT / "examples/text/code_calibration.jsonl"
TEXT = ROOT / "examples/text/code_heldout.jsonl"
CALIBRATION_WINDOWS = 64

Float32 = npt.NDArray[np.float32]
Float64 = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Layer:
    """Weights [N, K] of layers that read one input, one below the other.

    Attributes:
        names: Of the checkpoint's tensors.
        rows: Of each of them.
        weight: float32 [N, K].
        hessian: E[x xᵀ] of the input, float64 [K, K].
    """

    names: tuple[str, ...]
    rows: tuple[int, ...]
    weight: Float32
    hessian: Float64

    def tensors(self, weight: Float32) -> Iterator[tuple[str, Float32]]:
        """The parts of a weight that takes this one's place."""
        starts = np.cumsum((0, *self.rows))
        for name, start, stop in zip(self.names, starts, starts[1:], strict=False):
            yield name, weight[start:stop]


def read_layers() -> list[Layer]:
    """All layers of pycode, by the Hessians of the float32 model; the head is not among them."""
    model = import_model(MODEL).model
    read_pipeline(["canonicalize"], registry).run(model)
    groups, store = groups_of(model, head=False), CalibrationStore()
    tokens = windows_of(MODEL, CALIBRATION, CALIBRATION_WINDOWS)[:, :-1].copy()
    note_hessians(model, tokens, groups, store)
    found = []
    for group in groups:
        hessian = store.find(group.tensors[0], INPUT_HESSIAN)
        parts = [one.weight.read_rows(0, one.weight.rows_shape[0]) for one in group.linears]
        names = tuple(name.removesuffix(".transposed") for name in group.tensors)
        found.append(
            Layer(
                names,
                tuple(len(one) for one in parts),
                np.concatenate(parts).astype(np.float32),
                np.asarray(hessian),
            )
        )
    return found


class Judge:
    """Compares weights with the model's own on windows of held-out text; all else is float32."""

    def __init__(self, windows: int) -> None:
        self._tensors = read_tensors(MODEL)
        self._windows = windows_of(MODEL, TEXT, windows)[:, :-1]
        original = NumpyLlama(MODEL, FakeQuant(), self._tensors)
        self._known = [log_softmax(original.logits(one)) for one in self._windows]

    def figures(self, changed: dict[str, Float32]) -> dict[str, Any]:
        """Mean KL divergence in nats a token, and top-1 agreement."""
        llama = NumpyLlama(MODEL, FakeQuant(), self._tensors | changed)
        kl, same = [], []
        for known, window in zip(self._known, self._windows, strict=True):
            found = log_softmax(llama.logits(window))
            kl.append(float((np.exp(known) * (known - found)).sum(axis=-1).mean()))
            same.append(float((known.argmax(axis=-1) == found.argmax(axis=-1)).mean()))
        return {"kl_mean": float(np.mean(kl)), "top1_agreement": float(np.mean(same))}
