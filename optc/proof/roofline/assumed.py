"""Ceilings of a machine that was not measured: good enough to order engines by speed.

They make an order that does not depend on what else runs, and exist for machines that are not
here. `optc.proof.roofline.this_machine` measures those of this one.
"""

from __future__ import annotations

from collections.abc import Mapping

from optc.proof.roofline.ceilings import Ceiling
from optc.system.hardware.target import Target, usable_threads

#: Bytes a second that a desktop's or small server's CPU reads.
_CPU_READ = 2.5e10
#: Operations a second of a core of Zen 4 at 3.3 GHz with VNNI (a multiply-add is two).
_CORE = {"fp32": 96e9, "bf16": 210e9, "int8": 296e9, "int4": 296e9}
#: Of an NVIDIA H100 SXM, without sparsity, by its data sheet.
_GPU_READ = 3.35e12
_GPU = {"fp32": 67e12, "fp16": 989e12, "bf16": 989e12, "fp8": 1979e12, "int8": 1979e12}


def assumed_ceilings(target: Target, threads: int | None = None) -> dict[str, Ceiling]:
    """Those of ``threads`` cores (None are all usable ones), or of a GPU, by the names of
    `optc.proof.roofline.costs.PEAKS` and ``read``."""
    if target.kind == "cuda":
        peaks: Mapping[str, float] = {**_GPU, "int4": _GPU["int8"], "fp4": _GPU["fp8"]}
        found = {"read": _GPU_READ, **peaks}
    else:
        count = threads or usable_threads()
        whole = {name: count * pace for name, pace in _CORE.items()}
        found = {"read": _CPU_READ, **whole}
        found |= dict.fromkeys(("fp16", "fp8", "fp4"), whole["fp32"])
    return {name: Ceiling(value, value) for name, value in found.items()}
