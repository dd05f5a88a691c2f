"""The common length of an engine's and the reference's greedy continuations of a text.

The engine continues prompts greedily; the reference then scores each prompt with the engine's
continuation at once. Up to the first token that the reference would not have chosen both texts
are one, so that this is exactly where two greedy decodings part.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from optc.proof.reference.blockwise import BlockwiseReference
from optc.proof.reference.teacher_forcing import SingleSequence
from optc.runtime.executable.executable import Executable, Float32, Int32

#: Most prompts, and most tokens of a prompt and of its continuation.
PROMPTS = 8
PROMPT_TOKENS = 32
CONTINUED_TOKENS = 32


@dataclass(frozen=True)
class Continuations:
    """Greedy continuations of some prompts.

    Attributes:
        prompt_tokens: Length of each prompt.
        tokens: Length of each continuation.
        common: For each prompt, how many of them both models choose before they part.
    """

    prompt_tokens: int
    tokens: int
    common: tuple[int, ...]

    @property
    def mean(self) -> float:
        """Mean of ``common``, in tokens."""
        return float(np.mean(self.common))


def compare_continuations(
    reference: BlockwiseReference, executable: Executable, windows: Int32
) -> Continuations:
    """Continue the first tokens of some windows with both.

    Args:
        reference: Runs once over all prompts and continuations.
        executable: The engine; its KV pools are replaced.
        windows: [W, S + 1] token ids, S + 1 at least 2; no more than S are ever in the engine.
    """
    room = windows.shape[1] - 1
    prompt = max(1, min(PROMPT_TOKENS, room // 2))
    count = max(1, min(CONTINUED_TOKENS, room - prompt))
    prompts = windows[:PROMPTS, :prompt]
    sequence = SingleSequence(executable, prompt + count - 1)
    texts = np.stack([continued(sequence, ids, count) for ids in prompts])
    hidden = reference.run(texts[:, :-1]).reshape(*texts[:, :-1].shape, -1)
    chosen = _best_tokens(reference, hidden[:, prompt - 1 :])
    parted = np.pad(chosen != texts[:, prompt:], ((0, 0), (0, 1)), constant_values=True)
    return Continuations(prompt, count, tuple(parted.argmax(axis=1).tolist()))


def continued(sequence: SingleSequence, prompt: Int32, count: int) -> Int32:
    """The prompt [P] and ``count`` tokens that an engine decodes greedily, [P + count].

    Args:
        sequence: Has room for all of them but the last; is begun anew.
        prompt: [P] token ids.
        count: At least 1.
    """
    sequence.restart()
    logits = sequence.prefill(prompt)
    row = np.zeros(1, np.int32)
    tokens = [int(logits[0].argmax())]
    while len(tokens) < count:
        tokens.append(int(sequence.feed(np.array(tokens[-1:], np.int32), row)[0].argmax()))
    return np.concatenate([prompt, np.array(tokens, np.int32)])


def _best_tokens(reference: BlockwiseReference, hidden: Float32) -> Int32:
    """[W, S] the token that the reference finds likeliest, the lowest id on ties; -1, which is no
    token, where its logits hold a NaN."""
    rows = hidden.reshape(-1, hidden.shape[-1])
    top, best = np.full(len(rows), -np.inf, np.float32), np.zeros(len(rows), np.int32)
    for tile in reference.tiles():
        logits = reference.logits(rows, tile)
        place = logits.argmax(axis=1)
        highest = logits[np.arange(len(rows)), place]
        best = np.where(highest > top, (place + tile.start).astype(np.int32), best)
        top = np.maximum(top, highest)
    return np.where(np.isnan(top), np.int32(-1), best).reshape(hidden.shape[:-1])
