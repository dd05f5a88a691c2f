"""The same windows for every engine, and one float32 reference to compare all with."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from benchmarks.peers.measuring import Worker
from benchmarks.peers.subjects import Subject
from benchmarks.peers.tools import FailedError
from optc.proof.conversations.tokens import token_stream, window_start
from optc.proof.gates.divergence import RowDivergence, summarize
from optc.proof.reference.text import (
    WINDOW_TOKENS,
    cut_windows,
    default_documents,
    read_documents,
)

Array = npt.NDArray[Any]
#: Entries of the vocabulary that are compared at a time: large vocabularies need less memory so.
_TILE = 1 << 15


def windows_of(subject: Subject, text: Path | None, count: int) -> npt.NDArray[np.int32]:
    """Evenly spaced windows [W, 513] of a text, or of the gates' shipped one (None), framed and
    cut as the gates do it.

    Raises:
        InputError: The text cannot be read.
    """
    config = json.loads((subject.folder / "config.json").read_text("utf-8"))
    documents = default_documents() if text is None else read_documents(text)
    tokenizer, bos = subject.folder / "tokenizer.json", config.get("bos_token_id")
    stream = token_stream(documents, tokenizer, bos, config.get("eos_token_id"))
    return cut_windows(stream, WINDOW_TOKENS, count, window_start(tokenizer, bos))


class Evaluator:
    """Compares an engine's logits with the reference's, which are computed once and kept.

    Args:
        subject: The model.
        windows: [W, S + 1] token ids: every engine is given the first S, and S rows are scored.
        scratch: Folder for the reference's logits, float32 [W, S, V].
    """

    def __init__(self, subject: Subject, windows: npt.NDArray[np.int32], scratch: Path) -> None:
        self.windows = windows
        digest = hashlib.sha256(windows.tobytes()).hexdigest()[:12]
        path = scratch / subject.name / f"reference-{digest}.npy"
        if not path.exists():
            path.parent.mkdir(parents=True, exist_ok=True)
            write_reference(subject.folder, windows[:, :-1], path)
        self._reference = np.load(path, mmap_mode="r")

    def of_worker(self, worker: Worker, scratch: Path) -> dict[str, float]:
        """Figures of the engine that a worker runs; nats and tokens."""
        return self.of_logits(self._logits(worker, scratch))

    def of_logits(self, logits: Iterator[Array]) -> dict[str, float]:
        """Figures of logits [S, V], window after window. Logits of more entries than the
        reference has are of a padded vocabulary, and its padding is left out.

        Raises:
            FailedError: Logits of fewer entries: the tool has another vocabulary.
        """
        parts = []
        vocabulary = self._reference.shape[-1]
        for known, window, found in zip(self._reference, self.windows, logits, strict=True):
            if found.shape[-1] < vocabulary:
                raise FailedError(f"logits of {found.shape[-1]} entries, not of {vocabulary}")
            rows = RowDivergence(window[1:])
            for start in range(0, vocabulary, _TILE):
                stop = min(start + _TILE, vocabulary)
                rows.add(known[:, start:stop], found[:, start:stop], start)
            parts.append(rows.result())
        summary = summarize(parts)
        return {**dataclasses.asdict(summary), "perplexity_ratio": summary.perplexity_ratio}

    def _logits(self, worker: Worker, scratch: Path) -> Iterator[Array]:
        with tempfile.TemporaryDirectory(dir=scratch) as folder:
            file = Path(folder) / "logits.npy"
            for window in self.windows:
                worker.ask("logits", tokens=window[:-1].tolist(), file=str(file))
                yield np.load(file, mmap_mode="r")


def write_reference(folder: Path, windows: Array, path: Path) -> None:
    """Write logits [W, S, V] of a Hugging Face folder in float32 for windows [W, S], by
    transformers: no tool that is compared computed them."""
    import torch
    from transformers import AutoModelForCausalLM

    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
    part = path.with_suffix(".part")
    shape = (*windows.shape, model.config.vocab_size)
    with part.open("wb") as file:
        header = {"descr": "<f4", "fortran_order": False, "shape": shape}
        np.lib.format.write_array_header_1_0(file, header)
        with torch.inference_mode():
            for window in windows:
                ids = torch.tensor(window[None].astype(np.int64))
                file.write(model(input_ids=ids, use_cache=False).logits[0].numpy().tobytes())
    part.rename(path)
