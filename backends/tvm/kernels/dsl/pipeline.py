"""The lowering of TIR to what LLVM takes, without the passes that only GPUs and schedules need.

TVM's default for CPUs also compacts buffers, hoists conditions and looks for common expressions.
The kernels are written as they should run, so this changes nothing, and takes most of the compile
time of a large one. For the same reason `flatten_buffers` stands for TVM's `FlattenBuffer`, and
nothing looks for statements without effect.
"""

from __future__ import annotations

from typing import Any

import tvm
from tvm import s_tir, tirx
from tvm.s_tir.pipeline import default_s_tir_pipeline

from optc.backends.tvm.kernels.dsl.flatten import flatten_buffers

#: The name for ``tir_pipeline=`` of ``tvm.compile`` and ``relax.build``.
NAME = "optc"


def register(*first: Any) -> str:
    """Make the pipeline known to TVM, after the passes ``first``; returns its name."""
    tirx.register_tir_pipeline(NAME, lambda: _stages(first))
    return NAME


def _stages(first: tuple[Any, ...]) -> tuple[Any, Any, Any]:
    """The pipeline, then TVM's own last passes for host and device code."""
    _, finish_host, finish_device = default_s_tir_pipeline()
    passes = [
        *first,
        # blocks of schedulable TIR, which Relax's own operators become
        s_tir.transform.CanonicalizeLoop(),
        s_tir.transform.LowerInitBlock(),
        s_tir.transform.PlanAndUpdateBufferAllocationLocation(),
        s_tir.transform.ConvertBlocksToOpaque(),
        s_tir.transform.LowerMatchBuffer(),
        s_tir.transform.LowerOpaqueBlock(),
        # loops and buffers
        flatten_buffers,
        tirx.transform.BF16ComputeLegalize(),
        tirx.transform.NarrowDataType(32),
        tirx.transform.VectorizeLoop(True),
        tirx.transform.StorageRewrite(),
        tirx.transform.UnrollLoop(),
        tirx.transform.StmtSimplify(),
        tirx.transform.VerifyMemory(),
        # the calling convention
        tirx.transform.AnnotateEntryFunc(),
        tirx.transform.SplitHostDevice(),
        tirx.transform.MakePackedAPI(),
        tirx.transform.BF16StorageLegalize(),
    ]
    return tvm.transform.Sequential(passes), finish_host, finish_device
