"""Writes texts of a batch: the loop over a decoder's steps."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import numpy.typing as npt

from optc.runtime.encoded.batch import DecoderBatch, Run
from optc.runtime.text_to_text.rules import Rules

Array = npt.NDArray[np.generic]


def write(decoder: Run, read: Mapping[str, Array], rules: Rules) -> list[list[int]]:
    """Tokens of the texts that are written together, each with its end, if it has one.

    Args:
        decoder: Its steps.
        read: Keys and values of the texts that were read, by name, and their mask.
        rules: Of tokens.
    """
    batch = DecoderBatch(decoder, read)
    said: list[list[int]] = [[] for _ in range(batch.requests)]
    rows = list(range(batch.requests))  # the text of each row of the batch
    open_rows = set(rows)
    next_tokens = np.full(len(rows), rules.start, np.int64)
    while open_rows:
        logits = batch.step(next_tokens[rows][:, None])
        for place, row in enumerate(rows):
            if row not in open_rows:
                continue
            token = rules.next_token(logits[place, -1], said[row])
            said[row].append(token)
            next_tokens[row] = token
            if rules.ended(said[row]) or len(said[row]) >= rules.most:
                open_rows.discard(row)
        if open_rows and len(open_rows) <= len(rows) // 2:
            kept = [place for place, row in enumerate(rows) if row in open_rows]
            batch.keep(np.array(kept, np.int64))
            rows = [rows[place] for place in kept]
    return said
