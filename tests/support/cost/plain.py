"""LLVM's passes are left out of kernels that are a means: they are more than half of a compile.

Code without them takes two to three times as long to run, which in most tests is little beside the
compile. What tests run for long is compiled `tests.support.cost.subject.with_passes`.
"""

from __future__ import annotations

import tvm

from optc.backends.tvm.isa import Isa


def leave_out_passes() -> None:
    """From now on kernels of this process, which ends with its compile, are plain code."""
    whole = Isa.tvm_target

    def plain(self: Isa) -> tvm.target.Target:
        return without_passes(whole(self))

    Isa.tvm_target = plain  # type: ignore[method-assign]


def without_passes(target: tvm.target.Target) -> tvm.target.Target:
    """The same target, whose code LLVM writes as it comes."""
    return tvm.target.Target({**target.export(), "opt-level": 0})
