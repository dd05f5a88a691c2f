"""CUDA architectures as targets of TVM; needs TVM only where it makes one."""

from __future__ import annotations

from typing import TYPE_CHECKING

from optc.system.hardware.target import Target

if TYPE_CHECKING:
    import tvm


def tvm_target(target: Target) -> tvm.target.Target:
    """TVM's description of ``target``, its host code for plain x86-64.

    Several architectures share one source; TVM sees the least of them.
    """
    import tvm

    device = {
        "kind": "cuda",
        "arch": f"sm_{target.sm[0]}",
        "max_threads_per_block": 1024,
        "max_shared_memory_per_block": 49152,
        "thread_warp_size": 32,
    }
    return tvm.target.Target(device, host={"kind": "llvm", "mcpu": "x86-64"})
