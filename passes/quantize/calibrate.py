"""`calibrate`: the ranges of the linear layers' inputs, measured on a text."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar

import numpy as np
import onnx_ir as ir

from optc.errors import InputError
from optc.executable.executable import Int32
from optc.forms.decoder import Dense
from optc.forms.form import Form
from optc.ir.linear import Linear, find_linear
from optc.pipeline.base import LOCAL, Pass, PassReport
from optc.reference.calibration import (
    CalibrationStore,
    calibration_of,
    find_statistics,
    weights_of,
)
from optc.reference.observers import BlockObserver
from optc.target import usable_threads

#: Statistics of a weight: the largest magnitude that its layer's input x had, float64 [], and the
#: Hessian E[x xᵀ], float64 [K, K].
INPUT_RANGE, INPUT_HESSIAN = "input_range", "input_hessian"


@dataclass(frozen=True)
class Calibrate(Pass):
    """Runs the float32 model over a text and notes the largest magnitude of each layer's input.

    The graph stays as it is: the magnitudes go into the model's calibration store, where static
    quantization reads them, and GPTQ the Hessians. One layer after the other is run by ONNX
    Runtime, for all windows, so that memory stays bounded; Hessians beyond 256 MiB lie in a
    temporary file.

    Attributes:
        text: ``.jsonl`` (one ``{"text": …}`` a line) or plain text; ``--calibration`` gives it.
        folder: The model's, for its tokenizer.
        sha256: Of the text, in hex: what is recorded of it.
        windows: Windows of the text, evenly spaced.
        window_tokens: Tokens of each.
        hessians: Note E[x xᵀ] of each layer's input x, too.
    """

    name: ClassVar[str] = "calibrate"
    required: ClassVar[bool] = True
    takes: ClassVar[tuple[type[Form], ...]] = (Dense,)

    text: str = field(default="", metadata=LOCAL)
    folder: str = field(default="", metadata=LOCAL)
    sha256: str = ""
    windows: int = 16
    window_tokens: int = 512
    hessians: bool = False

    def requires(self, model: ir.Model) -> None:
        """There is a text.

        Raises:
            InputError: There is none.
        """
        if not self.text:
            raise InputError(
                "there is no text to calibrate with",
                where=f"pass {self.name}",
                hint="give one with --calibration FILE, such as the model was trained on",
            )

    def run(self, model: ir.Model) -> PassReport:
        """Calibrate ``model``.

        Raises:
            InputError: The text or the tokenizer cannot be used.
        """
        report = PassReport()
        tokens = self._tokens()
        linears = [linear for node in model.graph if (linear := find_linear(node)) is not None]
        store = calibration_of(model)
        ranges = self._observe(model, tokens, linears, store)
        for linear in linears:
            if ranges[linear.x] == 0.0:
                report.skip(linear.matmul, "its input is zero on this text")
            else:
                note_input_range(store, linear, ranges[linear.x])
                report.add("linear layer")
        largest = max(linears, key=lambda linear: ranges[linear.x])
        report.facts = {
            "tokens": int(tokens.size),
            "largest_input": {"weight": largest.name, "magnitude": ranges[largest.x]},
            "statistics_sha256": store.digest(),
        }
        return report

    def _observe(
        self, model: ir.Model, tokens: Int32, linears: Sequence[Linear], store: CalibrationStore
    ) -> dict[ir.Value, float]:
        """Run the model; the largest magnitudes of the layers' inputs. Hessians go into ``store``,
        once for all layers of one input."""
        from optc.reference.activation_ranges import RangeObserver
        from optc.reference.blockwise import observe  # brings ONNX Runtime
        from optc.reference.input_hessians import HessianObserver

        readers: dict[ir.Value, list[str]] = {}
        for linear in linears:
            readers.setdefault(linear.x, []).extend(weights_of(linear))
        ranges = RangeObserver(readers)
        observers: list[BlockObserver] = [ranges]
        if self.hessians:
            keep = HessianObserver(
                readers, lambda value, found: store.put(readers[value], INPUT_HESSIAN, found)
            )
            observers.append(keep)
        observe(model, tokens, observers, usable_threads())
        return ranges.ranges

    def _tokens(self) -> Int32:
        """Windows [W, S] of the text, documents framed as the model was trained."""
        from optc.reference.text import cut_windows, digest_text, read_documents, token_stream

        path, folder = Path(self.text), Path(self.folder)
        if self.sha256 and digest_text(path) != self.sha256:
            raise InputError("the text is not that of the recipe's sha256", where=self.text)
        bos, eos = _frame(folder)
        stream = token_stream(read_documents(path), folder / "tokenizer.json", bos, eos)
        return cut_windows(stream, self.window_tokens, self.windows)[:, :-1].copy()


def note_input_range(store: CalibrationStore, linear: Linear, magnitude: float) -> None:
    """Keep the largest magnitude of a layer's input, or a larger one that is known already."""
    known = input_range(store, linear) or 0.0
    store.put(weights_of(linear), INPUT_RANGE, np.array(max(known, magnitude)))


def input_range(store: CalibrationStore, linear: Linear) -> float | None:
    """The largest magnitude that a layer's input had; None if it is not calibrated."""
    found = find_statistics(store, linear, INPUT_RANGE)
    return max(float(array) for array in found) if found else None


def _frame(folder: Path) -> tuple[int | None, int | None]:
    """BOS and EOS of the model in ``folder``, where it has them."""
    path = folder / "config.json"
    try:
        config = json.loads(path.read_text("utf-8"))
    except (OSError, ValueError) as error:
        raise InputError(f"cannot read the configuration: {error}", where=str(path)) from error
    ids = []
    for name in ("bos_token_id", "eos_token_id"):
        token = config.get(name)
        ids.append(token[0] if isinstance(token, list) and token else token)
    return ids[0], ids[1]
