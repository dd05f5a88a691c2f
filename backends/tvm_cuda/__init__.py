"""The TVM backend for CUDA: kernels in CUDA C++, built ahead of time, beside host code of TVM's.

It shares the lowering, the packed weights and the compiler's process with the backend for CPUs
(`optc.backends.tvm`). Importing it loads neither TVM nor NumPy.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from optc.backends.tvm.common import TvmBackendBase, lowering_support

if TYPE_CHECKING:
    import onnx_ir as ir

    from optc.artifact.files import EngineFiles
    from optc.artifact.manifest import EngineEntry
    from optc.backend import BuildOptions, EngineBuild, Support
    from optc.proof.roofline.estimate import EngineEstimate
    from optc.runtime.executable.executable import Executable, StepInterface
    from optc.system.hardware.target import Target

__all__ = ["BACKEND", "TvmCudaBackend"]


class TvmCudaBackend(TvmBackendBase):
    """`optc.backend.Backend` on Apache TVM, for CUDA devices.

    Engines carry no loops that measure the device: ``python -m benchmarks.cuda`` measures them on
    a GPU.
    """

    name = "tvm-cuda"
    preference = 20

    def available(self) -> str:
        """Empty if engines can be built here, else what is missing and how to get it."""
        from optc.backends.tvm_cuda.toolchain import device_compiler
        from optc.errors import UnavailableError

        reason = super().available()
        if reason:
            return reason
        try:
            device_compiler()
        except UnavailableError as error:
            return error.render()
        return ""

    def takes(self, target: Target) -> str:
        """Empty if ``target`` is a CUDA device, else the reason."""
        return "" if target.kind == "cuda" else f"its kernels run on CUDA, not on a {target.kind}"

    def kv_pools(self, dtype: str, target: Target) -> Support:
        """Native where CUDA kernels read pools of ``dtype``."""
        from optc.backend import Support
        from optc.backends.tvm_cuda.limits import pool_refusal

        reason = pool_refusal(dtype)
        return Support("unsupported", reason) if reason else super().kv_pools(dtype, target)

    def supports(self, node: ir.Node, target: Target) -> Support:
        """Native where ``node`` has a kernel."""
        from optc.backends.tvm_cuda.limits import refusal

        return lowering_support(node, refusal)

    def estimate(self, model: ir.Model, target: Target, options: BuildOptions) -> EngineEstimate:
        """The estimate that the lowering alone gives; see `optc.backends.tvm.lowering.estimate`."""
        from optc.backends.tvm.lowering.estimate import estimate_engine
        from optc.backends.tvm_cuda.limits import PEAKS

        return estimate_engine(model, target, options, PEAKS)

    def build(
        self, model: ir.Model, target: Target, workdir: Path, options: BuildOptions
    ) -> EngineBuild:
        """Build the ragged-step model; see `optc.backends.tvm_cuda.build.build_engine`."""
        from optc.backends.tvm_cuda.build import build_engine

        return build_engine(model, target, workdir, options)

    def check(self, engine: EngineEntry, files: EngineFiles) -> None:
        """Check ``engine.data`` and the files that it leads to."""
        from optc.backends.tvm_cuda.engine_data import read_data

        read_data(engine.data).check_files(files)

    def features_used(self, engine: EngineEntry) -> tuple[str, ...]:
        """None: the kernels run on the device."""
        return ()

    def prepare(self) -> None:
        """Import the loader and tvm_ffi, which take as long as all the rest of a load."""
        from optc.backends.tvm.runtime_libs import import_ffi
        from optc.backends.tvm_cuda.loaded import loader  # noqa: F401

        import_ffi()

    def load(
        self, folder: Path, spec: StepInterface, data: dict[str, Any], threads: int
    ) -> Executable:
        """Load what `build` wrote; see `optc.backends.tvm_cuda.loaded.loader.load_engine`."""
        from optc.backends.tvm_cuda.loaded.loader import load_engine

        return load_engine(folder, spec, data)


BACKEND = TvmCudaBackend()
