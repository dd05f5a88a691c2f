"""``optc`` on artifacts whose engines are the toy. ``OPTC_TEST_STEP_S`` makes each step take so
long; replicas, which are processes of their own, do the same."""

from __future__ import annotations

import os
import time
from pathlib import Path

from optc import registry
from optc.cli.main import main
from optc.runtime.engine import Engine
from optc.runtime.executable.executable import Float32, StepBatch
from optc.runtime.kv_events.events import StepLog
from optc.runtime.loader import load
from optc.runtime.settings import ServeSettings
from optc.serve.replicas import engine
from tests.runtime.support.artifacts import ToyBackend
from tests.runtime.support.toy import ToyExecutable


def with_toys() -> None:
    """Let artifacts have the toy in this process."""
    seconds = float(os.environ.get("OPTC_TEST_STEP_S", "0"))
    step = ToyExecutable.step

    def slow(self: ToyExecutable, batch: StepBatch) -> Float32:
        time.sleep(seconds)
        return step(self, batch)

    ToyExecutable.step = slow  # type: ignore[method-assign]
    real, toy = registry.backend, ToyBackend()
    registry.backend = lambda name: toy if name == "toy" else real(name)  # type: ignore[assignment]


def open_toy(path: Path, settings: ServeSettings, log: StepLog) -> Engine:
    """The engine of a replica, in its own process."""
    with_toys()
    return load(path, settings, log=log)


if __name__ == "__main__":
    from tests.support.children.serve_toy import open_toy as found  # by a name that others import

    engine.open_artifact = found
    with_toys()
    main()
