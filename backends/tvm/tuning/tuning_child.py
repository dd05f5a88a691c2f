"""Measuring schedules: ``python -m optc.backends.tvm.tuning.tuning_child REQUEST RESULT``.

A process of its own, because it loads the compiler (see `optc.backends.tvm.compiling.child`).
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path

from optc.backends.tvm.isa import isa_of
from optc.backends.tvm.tuning.schedule import Workload
from optc.target import Target


def main(arguments: Sequence[str]) -> int:
    """Read the request, measure, write the result; returns the exit status."""
    request = json.loads(Path(arguments[0]).read_text())
    # TVM imports torch if it can: two seconds and 200 MB that the compiler has no use for
    sys.modules["torch"] = None  # type: ignore[assignment]
    from optc.backends.tvm.tuning.kernel_timer import tune

    isa = isa_of(Target("", "cpu", tuple(request["features"])))
    workloads = [Workload(**entry) for entry in request["workloads"]]
    chosen = tune(workloads, isa, request["threads"], request["seconds"])
    Path(arguments[1]).write_text(json.dumps(chosen))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
