"""A decoder that is an engine of named tensors: requests that have as many tokens run together."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from optc.runtime.encoded.batch import DecoderBatch, Run
from optc.runtime.encoded.request import Array, Decoding, Encoded
from optc.runtime.executable.tensors import TensorsExecutable


class TensorDecoder:
    """Steps of a whole batch: what is submitted until somebody waits.

    Args:
        executable: As `optc.importer.tensors.encoder_decoder.ImportedEncoderDecoder.decoder`.
    """

    def __init__(self, executable: TensorsExecutable) -> None:
        self._executable = executable

    def session(self) -> TensorSession:
        """For one caller."""
        return TensorSession(self._executable.run)

    def inputs(self, encoded: Encoded, tokens: Sequence[int]) -> Mapping[str, Any]:
        """The engine's inputs for a step that reads all tokens of a request."""
        batch = DecoderBatch(self._executable.run, _joined([encoded]))
        return batch.inputs(np.array([tokens], np.int64))

    def close(self) -> None:
        """Free the engine."""
        self._executable.close()


class TensorSession:
    """Requests of one caller, which run while the caller waits."""

    def __init__(self, run: Run) -> None:
        self._run = run
        self._new: list[Decoding] = []
        self._ended: deque[Decoding] = deque()

    def submit(self, requests: Iterable[Decoding]) -> None:
        """Keep requests for the next `wait`."""
        self._new += requests

    def wait(self) -> Any:
        """The next request that has ended; all that are there run first."""
        while not self._ended:
            length = len(self._new[0].prompt)
            some = [one for one in self._new if len(one.prompt) == length]
            self._new = [one for one in self._new if len(one.prompt) != length]
            self._run_all(some)
        return self._ended.popleft()

    def _run_all(self, requests: list[Decoding]) -> None:
        batch = DecoderBatch(self._run, _joined([one.encoded for one in requests]))
        heard = [one.heard for one in requests]
        tokens = [list(one.prompt) for one in requests]
        rows = list(range(len(requests)))  # of the batch, the request of each
        open_rows = set(rows)
        while True:
            logits = batch.step(np.array([tokens[row] for row in rows], np.int64))
            for place, row in enumerate(rows):
                if row not in open_rows:
                    continue
                following = requests[row].take(logits[place, heard[row] :].copy())
                heard[row] = 0
                if not following:
                    open_rows.discard(row)
                else:
                    tokens[row] = list(following)
            if not open_rows:
                break
            if len(open_rows) <= len(rows) // 2:
                kept = [place for place, row in enumerate(rows) if row in open_rows]
                batch.keep(np.array(kept, np.int64))
                rows = [rows[place] for place in kept]
            width = len(tokens[next(iter(open_rows))])
            for row in set(rows) - open_rows:  # they go along, as long as the others
                tokens[row] = tokens[row][-1:] * width
        self._ended += requests


def _joined(encoded: Sequence[Encoded]) -> dict[str, Array]:
    """Tensors with a row for each; those of whole batches are no copies, if they lie in order."""
    first = encoded[0].tensors
    rows = [one.row for one in encoded]
    if all(one.tensors is first for one in encoded):
        if rows == list(range(len(next(iter(first.values()))))):
            return {name: np.ascontiguousarray(tensor) for name, tensor in first.items()}
        return {name: tensor[rows] for name, tensor in first.items()}
    return {name: np.stack([one.tensors[name][one.row] for one in encoded]) for name in first}
