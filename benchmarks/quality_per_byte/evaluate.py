"""One evaluator for everybody: float32 logits of the same windows, compared row by row."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from benchmarks.proof.numpy_llama import FakeQuant, NumpyLlama
from optc.proof.conversations.tokens import token_stream
from optc.proof.gates.divergence import RowDivergence, summarize
from optc.proof.reference.text import cut_windows, read_documents

Array = npt.NDArray[Any]
WINDOW = 512
#: The windows that gates score.
HELD_OUT_WINDOWS = 60
#: 128 windows are what most quantizers take by default.
CALIBRATION_WINDOWS = 128


def windows_of(model: Path, text: Path, count: int) -> npt.NDArray[np.int32]:
    """Evenly spaced windows [count, 513] of a text, framed and cut as the gates do it."""
    config = json.loads((model / "config.json").read_text())
    stream = token_stream(
        read_documents(text),
        model / "tokenizer.json",
        config["bos_token_id"],
        config["eos_token_id"],
    )
    return cut_windows(stream, WINDOW, count, config["bos_token_id"])


class Evaluator:
    """Compares logits with those of the float32 model, which are computed once.

    Args:
        model: Hugging Face folder of a Llama with a tied head.
        text: Held-out text.
        scratch: Folder for the reference's logits, float32 [60, 512, V].
    """

    def __init__(self, model: Path, text: Path, scratch: Path) -> None:
        self.model = model
        self.windows = windows_of(model, text, HELD_OUT_WINDOWS)
        self._path = scratch / "reference.npy"
        if not self._path.exists():
            scratch.mkdir(parents=True, exist_ok=True)
            llama = NumpyLlama(model, FakeQuant())
            temporary = self._path.with_name("reference.part.npy")
            np.save(temporary, np.stack([llama.logits(w) for w in self.windows[:, :-1]]))
            temporary.rename(self._path)

    def of_weights(self, tensors: dict[str, Array]) -> dict[str, float]:
        """Figures of float32 arithmetic with these weights, by the checkpoint's names."""
        llama = NumpyLlama(self.model, FakeQuant(), tensors)
        return self.of_logits(llama.logits(window) for window in self.windows[:, :-1])

    def of_logits(self, logits: Iterable[Array]) -> dict[str, float]:
        """Figures of logits [512, V], window after window; nats and tokens."""
        reference = np.load(self._path, mmap_mode="r")
        parts = []
        for known, window, found in zip(reference, self.windows, logits, strict=True):
            rows = RowDivergence(window[1:])
            rows.add(known, np.asarray(found, np.float32), 0)
            parts.append(rows.result())
        summary = summarize(parts)
        return {**dataclasses.asdict(summary), "perplexity_ratio": summary.perplexity_ratio}
