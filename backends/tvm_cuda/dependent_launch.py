"""Kernels that may start before those before them have ended, by the launch and by their code.

A decode step is some hundred kernels of a few microseconds each, between which a GPU's memory is
idle: the next one starts when the last block of the one before has ended. With programmatic
dependent launch (CUDA C++ Programming Guide; from sm_90 on) its blocks start as room becomes free,
fetch their first weights, and then wait until what they read has been written (``order.cuh``).
"""

from __future__ import annotations

import tvm

from optc.system.hardware.target import Target

#: The name for ``tir_pipeline=`` of ``relax.build``.
NAME = "optc-cuda"
#: Of TVM: how a kernel is launched, and what says that it may start early (spelled as there).
_PARAMETERS, _EARLY = "tirx.kernel_launch_params", "tirx.use_programtic_dependent_launch"
#: Least compute capability.
LEAST = 90
#: A call of the device code's that every kernel of ours begins with.
_OURS = "optc::let_next_kernel_start"


def register(target: Target) -> str:
    """Make the pipeline known to TVM for engines of ``target``; returns its name.

    One library of host code launches for all architectures of a target, so that kernels start early
    where all of them can.
    """
    device = tvm.target.Target("cuda")
    everywhere = min(target.sm) >= LEAST

    def stages() -> tuple[object, object, object]:
        lower, host, finish = tvm.tirx.get_default_tir_pipeline(device)
        lowered = [lower, start_early] if everywhere else [lower]
        return tvm.transform.Sequential(lowered), host, finish

    tvm.tirx.register_tir_pipeline(NAME, stages)
    return NAME


@tvm.transform.module_pass(opt_level=0)
def start_early(module: tvm.IRModule, _: object) -> tvm.IRModule:
    """Let kernels of ours start early; those that TVM makes of its own operators wait for none."""
    changed = {}
    for name, function in module.functions.items():
        parameters = (function.attrs or {}).get(_PARAMETERS)
        if parameters is not None and _OURS in str(function.body):
            changed[name] = function.with_attr(_PARAMETERS, [_EARLY, *parameters])
    for name, function in changed.items():
        module.update_func(name, function)
    return module
