"""The pass, node and tensor where a compile's divergence begins: ``optc compile --bisect``."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from optc.compiling.lowering.lowering import Lowered, dense_pipeline
from optc.proof.gates.bisect.bisect import bisect
from optc.proof.gates.bisect.stages import LEAST_KL, Stage
from optc.proof.gates.measure import GateResult
from optc.proof.reference.text import EvalWindows
from optc.system.hardware.target import usable_threads
from optc.system.progress import Progress

#: What stands for a pass where the passes are right and an engine is not.
BUILD = "build"
#: How much farther from the source than the passes' model an engine has to be: gates are measured
#: on more tokens, so that both figures differ by chance, too.
FACTOR = 3.0


def bisect_passes(
    lowered: Lowered, gates: Sequence[GateResult], windows: EvalWindows, progress: Progress
) -> dict[str, Any]:
    """Run the models after all passes on the gates' text and compare them.

    Args:
        lowered: With its stages.
        gates: What was measured of engines: one whose mean KL is `FACTOR` times that after all
            passes diverges in its build.
        windows: Of the gates' text.
        progress: Told after each stage.

    Returns:
        JSON values, `optc.proof.gates.bisect.bisect.Bisection.to_json`, and ``engines``.

    Raises:
        UnsupportedError: The model cannot be cut at its layers.
    """
    stages = [Stage(dense_pipeline().passes[-1].name, lowered.reference)]
    stages += [Stage(name, model) for name, model in lowered.stages]
    found = bisect(stages, windows, threads=usable_threads(), progress=progress).to_json()
    measured = [gate for gate in gates if gate.name == "kl_mean" and gate.value is not None]
    return with_engines(found, measured)


def with_engines(found: dict[str, Any], measured: Sequence[GateResult]) -> dict[str, Any]:
    """A bisection with the mean KL of engines; the build is named where it is to blame.

    Args:
        found: Of the passes.
        measured: Gates ``kl_mean`` that have a value.
    """
    kl = {(g.engine, g.measured_on): float(g.value) for g in measured if g.value is not None}
    engines = [
        {"name": name, "measured_on": where, "kl": value if math.isfinite(value) else None}
        for (name, where), value in kl.items()
    ]
    last = found["passes"][-1]["kl"]
    wrong = [
        engine
        for engine, value in zip(engines, kl.values(), strict=True)
        if last is not None and not value <= max(LEAST_KL, FACTOR * last)
    ]
    if not wrong:
        return {**found, "engines": engines}
    kept = ("tokens", "passes", "sqnr_by_layer")
    nothing = dict.fromkeys(key for key in found if key not in kept)
    build = {"pass": BUILD, "kl_before": last, "kl_after": wrong[0]["kl"], "suspects": []}
    return {**found, **nothing, **build, "engines": engines}
