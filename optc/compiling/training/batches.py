"""Windows to train and to judge on, cut from texts."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from optc.errors import InputError
from optc.importer.text_model.stated import frame
from optc.proof.conversations.load import folder_chat
from optc.proof.conversations.read import read_texts
from optc.proof.conversations.tokens import token_stream, window_start
from optc.proof.reference.text import cut_windows
from optc.runtime.executable.executable import Int32

#: Windows that the student is judged on while it trains, and their tokens, at the least: a few
#: thousand tell two states apart.
HELD_OUT_WINDOWS = 16
HELD_OUT_TOKENS = 4096
#: Share of the text that is held out where no file is given.
HELD_OUT_SHARE = 1 / 20


_TOKENIZER = "tokenizer.json"


@dataclass(frozen=True)
class Pool:
    """Tokens to train on, and windows [W, S] to judge on; ``start`` begins each window, too."""

    stream: Int32
    held_out: Int32
    start: int | None = None


class Windows:
    """Windows of a stream without overlap, in another order and from another start each epoch: a
    function of the step, so that a training goes on where it stopped.

    Args:
        stream: Tokens.
        length: Tokens of a window.
        batch: Windows of a step.
        seed: Of order and starts.
        start: Takes the place of each window's first token (`window_start`).
    """

    def __init__(
        self, stream: Int32, length: int, batch: int, seed: int, start: int | None = None
    ) -> None:
        self._stream, self._length, self._batch, self._seed = stream, length, batch, seed
        self._first = start
        self._in_epoch = (len(stream) - length) // length
        self._epoch = -1
        self._start, self._order = 0, np.zeros(0, np.int64)

    def __call__(self, step: int) -> Tensor:
        """The windows [batch, length] of a step, int64."""
        numbers = range(step * self._batch, (step + 1) * self._batch)
        rows = [self._window(*divmod(number, self._in_epoch)) for number in numbers]
        return torch.from_numpy(np.stack(rows).astype(np.int64))

    def _window(self, epoch: int, index: int) -> Int32:
        if epoch != self._epoch:
            random = np.random.default_rng([self._seed, epoch])
            self._start = int(random.integers(self._length))
            self._order = random.permutation(self._in_epoch)
            self._epoch = epoch
        at = self._start + int(self._order[index]) * self._length
        row = self._stream[at : at + self._length].copy()
        if self._first is not None:
            row[0] = self._first
        return row


def check_tokenizer(folder: Path) -> None:
    """Check that a model has what reads a text.

    Raises:
        InputError: It has no tokenizer.json.
    """
    if not (folder / _TOKENIZER).is_file():
        raise InputError(
            "no tokenizer.json to read a text with",
            where=str(folder),
            hint="give a model with a tokenizer",
        )


def read_pool(
    folder: Path,
    config: dict[str, Any],
    texts: Sequence[Path],
    held_out: Path | None,
    window: int,
) -> Pool:
    """The tokens of ``texts``, by the tokenizer of the model in ``folder``.

    Args:
        folder: The model's.
        config: Its config.json, which says how documents are framed.
        texts: What to train on.
        held_out: What to judge on; None is the last twentieth of the tokens.
        window: Tokens of a window.

    Raises:
        InputError: No tokenizer, an unusable text, or one too short for windows.
    """
    check_tokenizer(folder)
    tokenizer = folder / _TOKENIZER
    ends = frame(config)

    def tokens(paths: Iterable[Path]) -> Int32:
        documents = (one for path in paths for one in read_texts(path))
        return token_stream(documents, tokenizer, *ends, folder_chat(folder))

    stream = tokens(texts)
    if held_out is not None:
        judged = tokens([held_out])
    else:
        kept = max(window + 1, int(len(stream) * HELD_OUT_SHARE))
        stream, judged = stream[:-kept], stream[-kept:]
    if len(stream) < 2 * window or len(judged) <= window:
        raise InputError(
            f"the text has {len(stream) + len(judged)} tokens, too few for windows of {window}",
            where=", ".join(map(str, texts)),
            hint="give more text, or a smaller --window",
        )
    windows = max(HELD_OUT_WINDOWS, HELD_OUT_TOKENS // window)
    start = window_start(tokenizer, ends[0])
    return Pool(stream, cut_windows(judged, window, windows, start)[:, :-1], start)
