"""The fit of a model to a text, for its words' frequencies: a sign that it is of its domain.

The loss alone says little: code is easier than prose. A text's entropy is that of its tokens drawn
by their frequencies, and what a model explains is the share of it that the loss is less. A model
explains about two thirds of text such as it was trained on, and next to nothing of other text.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from optc.proof.reference.blockwise import BlockwiseReference, chunks
from optc.proof.reference.text import cut_windows
from optc.runtime.executable.executable import Int32

Float64 = npt.NDArray[np.float64]
#: Rows whose logits, by a tile of the vocabulary, are in memory at once.
_ROWS = 1024


@dataclass(frozen=True)
class TextFit:
    """A model and a text.

    Attributes:
        tokens: Of the text.
        loss: Of the model, nats a token: the mean over some windows.
        entropy: Of the text's tokens by their frequencies, nats a token.
    """

    tokens: int
    loss: float
    entropy: float

    @property
    def explained(self) -> float:
        """Share of the entropy that the model explains; below 0 where it is misled."""
        return 1 - self.loss / self.entropy if self.entropy else 0.0


def text_fit(
    reference: BlockwiseReference,
    stream: Int32,
    windows: int,
    window_tokens: int,
    start: int | None = None,
) -> TextFit:
    """Score evenly spaced windows of a text's tokens, each of which begins with ``start`` if there
    is one.

    Raises:
        InputError: The text has fewer than two tokens.
    """
    ids = cut_windows(stream, window_tokens, windows, start)
    losses = token_losses(reference, ids)
    return TextFit(len(stream), float(losses.mean()), token_entropy(stream))


def token_entropy(stream: Int32) -> float:
    """Entropy of the tokens' frequencies in nats, without the bias of a short text (Miller, 1955:
    half of the distinct tokens but one, over all tokens)."""
    counts = np.unique(stream, return_counts=True)[1]
    shares = counts / counts.sum()
    return float(-(shares * np.log(shares)).sum() + (len(counts) - 1) / (2 * len(stream)))


def token_losses(reference: BlockwiseReference, ids: Int32) -> Float64:
    """Negative log-likelihoods, in nats, [W * S], of the tokens after the first of each window
    [W, S + 1]."""
    import torch  # beside the reference it is there

    hidden, targets = reference.run(ids[:, :-1]), ids[:, 1:].ravel()
    totals, wanted = np.full(len(targets), -np.inf), np.zeros(len(targets))
    for tile in reference.tiles():
        for rows in chunks(len(targets), _ROWS):
            logits = reference.logits(hidden[rows], tile)
            found = torch.logsumexp(torch.from_numpy(logits), dim=1).numpy()
            totals[rows] = np.logaddexp(totals[rows], found)
            here = np.flatnonzero((targets[rows] >= tile.start) & (targets[rows] < tile.stop))
            wanted[rows.start + here] = logits[here, targets[rows][here] - tile.start]
    return totals - wanted
