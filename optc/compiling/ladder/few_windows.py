"""A rung on few windows of the gates' text: most rungs that fall do so far beyond the bound.

The windows are some of those that the gates score, so that the float32 model runs once over all of
them for all rungs. A sequential test within the gates themselves would do the same: then
`climb` needs no call of `lost_on_few`.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from optc import registry
from optc.artifact.manifest import EngineEntry
from optc.compiling.ladder.losses import loss_of
from optc.proof.gates.compare import compare_windows, trial
from optc.proof.gates.divergence import Divergence
from optc.proof.gates.measure import DIVERGENCE_GATES
from optc.proof.reference.blockwise import BlockwiseReference
from optc.proof.reference.text import EvalWindows
from optc.system.hardware.machine import this_machine
from optc.system.hardware.target import usable_threads
from optc.system.progress import Progress, no_progress

#: Windows that are scored first.
FEW = 4
#: A loss on few windows that is this much above what is allowed is not worth the other windows:
#: means of four windows lie within a third of the mean of sixty.
_SLACK = 0.5


def measure_few(
    entry: EngineEntry,
    artifact: Path,
    reference: BlockwiseReference,
    windows: EvalWindows,
    progress: Progress = no_progress,
) -> dict[str, float]:
    """Losses of an engine on few of the windows, by gate; none where it does not run here.

    Args:
        entry: The engine.
        artifact: The folder that it lies in.
        reference: Gates that score all windows later find its states of these again.
        windows: All that the gates will score.
        progress: Told what goes on.
    """
    backend = registry.step_backend(entry.backend)
    if backend.can_load(entry, this_machine()) or len(windows.ids) <= FEW:
        return {}
    folder = artifact / entry.folder
    executable = backend.load(folder, entry.spec, entry.data, usable_threads())
    try:
        few = trial(windows, FEW)
        found = compare_windows(reference, executable, few, progress=progress).divergence
    finally:
        executable.close()
    return _values(found)


def lost_on_few(values: Mapping[str, float], bounds: Mapping[str, float]) -> tuple[str, ...]:
    """The gates whose bounds are so far from values of few windows that all windows would not hold
    them either."""
    found = []
    for gate, bound in bounds.items():
        loss, allowed = loss_of(gate, values.get(gate)), loss_of(gate, bound)
        if loss is not None and allowed is not None and loss > allowed + _SLACK * abs(allowed):
            found.append(gate)
    return tuple(found)


def _values(found: Divergence) -> dict[str, float]:
    return {name: float(getattr(found, name)) for name in DIVERGENCE_GATES}
