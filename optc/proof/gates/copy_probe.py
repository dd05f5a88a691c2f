"""A test of an engine's KV cache over a distance: a text, some other tokens, the same text again.

A model predicts the second copy better than the first, because it finds it in the cache. Keys and
values of few bits hurt that more than they hurt fresh text, which a mean divergence hides.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from optc.proof.gates.divergence import RowScores
from optc.proof.gates.scoring import scoring
from optc.proof.reference.blockwise import BlockwiseReference
from optc.proof.reference.teacher_forcing import SingleSequence, window_logits
from optc.runtime.executable.executable import Executable, Int32
from optc.system.processes.process_memory import freed_is_kept

#: Most probes, evenly spaced among the windows; and where they are reported, but not judged.
PROBES, UNJUDGED_PROBES = 8, 2
#: Share of a probe that is copied; what stands between both copies is the rest.
COPIED = 220 / 511


@dataclass(frozen=True)
class CopyProbe:
    """Mean negative log-likelihood of second copies, nats a token.

    Attributes:
        copied_tokens: Length of the text that comes twice.
        distance_tokens: How far apart a token and its copy are.
        tokens: Copied tokens that were scored; a copy's first is not, for nothing says it begins.
        nll_reference: By the float32 model.
        nll_engine: By the engine.
    """

    copied_tokens: int
    distance_tokens: int
    tokens: int
    nll_reference: float
    nll_engine: float

    @property
    def added(self) -> float:
        """The loss that the engine adds, nats a token."""
        return self.nll_engine - self.nll_reference


def probes(windows: Int32, most: int = PROBES) -> tuple[Int32, int]:
    """Probes [P, S + 1] from windows [W, S + 1], and how many tokens come twice in each.

    P is W, at most ``most``. A window's first tokens stand again where its last ones were.
    """
    count, size = windows.shape
    copied = max(1, int(size * COPIED))
    chosen = windows[np.linspace(0, count - 1, min(most, count)).astype(int)]
    return np.concatenate([chosen[:, : size - copied], chosen[:, :copied]], axis=1), copied


def copy_probe(
    reference: BlockwiseReference, executable: Executable, windows: Int32, most: int = PROBES
) -> CopyProbe | None:
    """Score second copies with both; None where windows [W, S + 1] are too short for a copy.

    Args:
        reference: Runs once over the probes.
        executable: The engine; its KV pools are replaced.
        windows: Token ids.
        most: Probes.
    """
    texts, copied = probes(windows, most)
    if copied < 2:
        return None
    size = texts.shape[1] - 1
    first = size + 1 - copied  # where the second copy begins
    hidden = reference.run(texts[:, :-1]).reshape(len(texts), size, -1)
    sequence = SingleSequence(executable, size)
    scores: list[RowScores] = []
    with freed_is_kept(), scoring(reference) as scorer:
        for ids, states in zip(texts, hidden, strict=True):
            for start, logits in window_logits(sequence, ids[:-1]):
                skipped = max(0, first - start)  # row r predicts token r + 1
                rows = np.arange(start, start + len(logits))[skipped:]
                if len(rows):
                    scores.append(scorer.score(states[rows], logits[skipped:], ids[rows + 1]))
    theirs = np.concatenate([s.nll_reference for s in scores])
    ours = np.concatenate([s.nll_engine for s in scores])
    return CopyProbe(copied, first, len(ours), float(theirs.mean()), float(ours.mean()))
