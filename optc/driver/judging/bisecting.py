"""Which pass, node and tensor of a compile its divergence begins in: ``optc compile --bisect``."""

from __future__ import annotations

from typing import Any

from optc.driver.compiling.lowering import CANONICALIZE, Lowered
from optc.gates.bisect.bisect import bisect
from optc.gates.bisect.stages import Stage
from optc.progress import Progress
from optc.reference.text import EvalWindows
from optc.target import usable_threads


def bisect_passes(lowered: Lowered, windows: EvalWindows, progress: Progress) -> dict[str, Any]:
    """Run the models after all passes on the gates' text and compare them.

    Args:
        lowered: With its stages.
        windows: Of the gates' text.
        progress: Told after each stage.

    Returns:
        JSON values, `optc.gates.bisect.bisect.Bisection.to_json`.

    Raises:
        UnsupportedError: The model cannot be cut at its layers.
    """
    stages = [Stage(CANONICALIZE, lowered.reference)]
    stages += [Stage(name, model) for name, model in lowered.stages]
    return bisect(stages, windows, threads=usable_threads(), progress=progress).to_json()
