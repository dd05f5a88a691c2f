"""An engine against the float32 reference, window by window, and no further than it makes sense."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from optc.proof.gates.divergence import Divergence, RowScores, summarize
from optc.proof.gates.early_end import EarlyEnd, GateTests, random_order
from optc.proof.gates.interval import mean_interval
from optc.proof.gates.kl_distribution import kl_distribution
from optc.proof.gates.scoring import Scoring, joined, scoring
from optc.proof.gates.worst_contexts import WorstContexts, decoder
from optc.proof.reference.blockwise import BlockwiseReference
from optc.proof.reference.running.window_states import WindowStates
from optc.proof.reference.teacher_forcing import SingleSequence, window_logits
from optc.proof.reference.text import EvalWindows
from optc.runtime.executable.executable import Executable
from optc.system.processes.process_memory import freed_is_kept
from optc.system.progress import Progress, no_progress


@dataclass(frozen=True)
class Compared:
    """The comparison over the windows that were measured.

    Attributes:
        divergence: Over all their rows.
        worst: Where engine and reference differ most.
        windows: Figures of each window, in the order in which they were measured.
        of: How many windows there are.
        ends: Gates that could not hold any more; empty where all windows were measured.
    """

    divergence: Divergence
    worst: WorstContexts
    windows: tuple[RowScores, ...]
    of: int
    ends: tuple[EarlyEnd, ...]

    def figures(self) -> dict[str, Any]:
        """JSON values for the report.

        ``kl_mean_interval`` is the 95 % interval of ``kl_mean`` for text of this kind
        (`optc.proof.gates.interval`); ``ended_early`` the gates that ended it, ``{gate, windows,
        of, certain}``.
        """
        kl = np.array([scores.kl.mean() for scores in self.windows])
        interval = mean_interval(kl)
        return {
            "kl_distribution": kl_distribution(self.windows),
            "kl_mean_interval": None if interval is None else list(interval),
            "worst_contexts": self.worst.to_json(),
            "windows_measured": len(self.windows),
            "windows": self.of,
            "ended_early": [vars(end).copy() for end in self.ends],
        }


def compare_windows(
    reference: BlockwiseReference,
    executable: Executable,
    windows: EvalWindows,
    bounds: Mapping[str, float | None] | None = None,
    progress: Progress = no_progress,
) -> Compared:
    """Run both over the windows, in an order drawn by chance that is the same for all engines.

    Args:
        reference: Runs once for several engines, and not for windows that none was measured on.
        executable: The engine; its KV pools are replaced.
        windows: What to score.
        bounds: Bound by gate name: it ends where one of them cannot hold any more
            (`optc.proof.gates.early_end`). Without them every window is measured.
        progress: Told after each window.
    """
    order = random_order(len(windows.ids))
    size = windows.ids.shape[1] - 1
    tests = GateTests(bounds or {}, len(order), size)
    states = reference.window_states(windows.ids[order, :-1])
    worst = WorstContexts(decoder(windows.tokenizer_file))
    found: list[RowScores] = []
    ends: list[EarlyEnd] = []
    with freed_is_kept(), scoring(reference) as scorer:
        run = _Run(SingleSequence(executable, size), states, scorer, windows, worst)
        for place, index in enumerate(order.tolist()):
            found.append(run.window(place, index))
            progress("divergence", place + 1, len(order))
            ends = tests.add(found[-1])
            if ends:
                break
    return Compared(summarize(found), worst, tuple(found), len(order), tuple(ends))


def trial(windows: EvalWindows, count: int) -> EvalWindows:
    """The ``count`` windows that gates measure first, for a look at an engine.

    Gates that measure all ``windows`` later with the same reference find its states of these
    again.
    """
    first = random_order(len(windows.ids))[:count]
    said = f"{len(first)} windows, drawn by chance, of these: {windows.convention}"
    return replace(windows, ids=windows.ids[first], convention=said)


@dataclass(frozen=True)
class _Run:
    """Engine and reference, ready to run windows."""

    sequence: SingleSequence
    states: WindowStates
    scoring: Scoring
    windows: EvalWindows
    worst: WorstContexts

    def window(self, place: int, index: int) -> RowScores:
        """Figures of the window ``index``, whose states are at ``place``."""
        ids, states = self.windows.ids[index], self.states.window(place)
        parts: list[RowScores] = []
        for start, logits in window_logits(self.sequence, ids[:-1]):
            rows = slice(start, start + len(logits))
            parts.append(self.scoring.score(states[rows], logits, ids[1:][rows]))
            self.worst.add(index, ids, start, parts[-1])
        return joined(parts)
