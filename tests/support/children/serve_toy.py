"""``optc`` on artifacts whose engines are the toy. ``OPTC_TEST_STEP_S`` makes each step take so
long."""

from __future__ import annotations

import os
import time

from optc import registry
from optc.cli.main import main
from optc.runtime.executable.executable import Float32, StepBatch
from tests.runtime.support.artifacts import ToyBackend
from tests.runtime.support.toy import ToyExecutable

if __name__ == "__main__":
    seconds = float(os.environ.pop("OPTC_TEST_STEP_S", "0"))
    step = ToyExecutable.step

    def slow(self: ToyExecutable, batch: StepBatch) -> Float32:
        time.sleep(seconds)
        return step(self, batch)

    ToyExecutable.step = slow  # type: ignore[method-assign]
    real, toy = registry.backend, ToyBackend()
    registry.backend = lambda name: toy if name == "toy" else real(name)  # type: ignore[assignment]
    main()
