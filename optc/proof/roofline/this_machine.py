"""The ceilings of this machine, by kernels compiled for it: bandwidth and arithmetic peaks."""

from __future__ import annotations

import tempfile
from pathlib import Path

from optc import registry
from optc.errors import UnavailableError
from optc.proof.roofline.ceilings import Meter, sample
from optc.proof.roofline.measurable import MeasurableBackend
from optc.system.hardware.cpu_caches import beyond_caches
from optc.system.hardware.target import known_targets, usable_threads
from optc.system.supported import check_system

#: Time that the ceilings are measured.
MEASURE_S = 2.0


def measure_machine(where: str) -> Meter:
    """A meter that has measured all usable threads for `MEASURE_S` seconds.

    Args:
        where: Names the command in messages.

    Raises:
        UnavailableError: No backend can compile or measure them here.
    """
    check_system(compiling=True)
    reasons = []
    for name in registry.backend_names():
        backend = registry.backend(name)
        reason = backend.available()
        if isinstance(backend, MeasurableBackend) and not reason:
            native = known_targets()["native"]
            with tempfile.TemporaryDirectory() as folder:
                threads = usable_threads()
                meter = backend.build_meter(native, Path(folder), threads, beyond_caches())
                sample(meter, MEASURE_S)
            return meter
        reasons.append(f"{name}: {reason or 'measures no ceilings'}")
    raise UnavailableError(
        f"no backend can measure this machine ({'; '.join(reasons)})",
        where=where,
        hint="pip install 'optc[compile]'",
    )
