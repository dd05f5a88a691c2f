"""The TVM backend: CPU engines built ahead of time. Importing it loads neither TVM nor NumPy."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import onnx_ir as ir

    from optc.artifact import EngineEntry
    from optc.artifact.files import EngineFiles
    from optc.backend import BuildOptions, EngineBuild, Support
    from optc.executable.executable import EngineSpec, Executable
    from optc.machine import Machine
    from optc.roofline.ceilings import Meter
    from optc.roofline.costs import StepCosts
    from optc.roofline.estimate import EngineEstimate
    from optc.roofline.measurable import Profiler
    from optc.target import Target

__all__ = ["BACKEND", "TvmBackend"]


class TvmBackend:
    """`optc.backend.Backend` on Apache TVM."""

    name = "tvm"
    preference = 20

    def available(self) -> str:
        """Empty if engines can be built here, else what is missing and how to get it."""
        from optc.backends.tvm.compiling.link import linker_command
        from optc.backends.tvm.runtime_libs import compiler_package
        from optc.errors import UnavailableError

        if compiler_package() is None:
            return "apache-tvm is not installed (pip install 'optc[compile]')"
        try:
            linker_command()
        except UnavailableError as error:
            return error.render()
        return ""

    def takes(self, target: Target) -> str:
        """Empty if there are kernels for ``target``, else the reason."""
        return "" if target.kind in ("cpu", "cuda") else f"there are no {target.kind} kernels"

    def supports(self, node: ir.Node, target: Target) -> Support:
        """Native where ``node`` has a kernel for ``target``."""
        from optc.backend import NATIVE, Support
        from optc.backends.tvm.cuda.limits import refusal
        from optc.backends.tvm.isa import isa_of
        from optc.backends.tvm.lowering.lower_model import HANDLERS
        from optc.backends.tvm.lowering.walk import check_node
        from optc.errors import UnavailableError

        if target.kind == "cuda":
            reason = check_node(node, HANDLERS) or refusal(node)
            return Support("unsupported", reason) if reason else NATIVE
        try:
            isa_of(target)
        except UnavailableError as error:
            return Support("unsupported", error.message)
        reason = check_node(node, HANDLERS)
        return Support("unsupported", reason) if reason else NATIVE

    def kv_pools(self, dtype: str, target: Target) -> Support:
        """Native where kernels read pools of ``dtype``; the same types on CPUs and CUDA."""
        from optc.backend import NATIVE, Support
        from optc.backends.tvm.kv_layout import pool_problem

        reason = pool_problem(dtype)
        return Support("unsupported", reason) if reason else NATIVE

    def estimate(self, model: ir.Model, target: Target, options: BuildOptions) -> EngineEstimate:
        """What the lowering alone tells; see `optc.backends.tvm.lowering.estimate`."""
        from optc.backends.tvm.lowering.estimate import estimate_engine

        return estimate_engine(model, target, options)

    def shares_weights(self, built: Target, other: Target) -> bool:
        """All targets have one layout of packed weights (docs/normal-form.md)."""
        return True

    def build(
        self, model: ir.Model, target: Target, workdir: Path, options: BuildOptions
    ) -> EngineBuild:
        """Build the ragged-step model; see `optc.backends.tvm.compiling.build.build_engine`."""
        if target.kind == "cuda":
            from optc.backends.tvm.cuda.build import build_engine as build_cuda_engine

            return build_cuda_engine(model, target, workdir, options)
        from optc.backends.tvm.compiling.build import build_engine

        return build_engine(model, target, workdir, options)

    def check(self, engine: EngineEntry, files: EngineFiles) -> None:
        """Check ``engine.data`` and the files that it leads to."""
        from optc.backends.tvm.engine_data import read_data

        read_data(engine.data).check_files(files)

    def can_load(self, engine: EngineEntry, machine: Machine) -> str:
        """Empty if the machine has what the engine's target needs and its release of tvm_ffi."""
        from optc.backends.tvm.runtime_libs import FFI_PACKAGE, ffi_mismatch

        required = engine.requires.get(FFI_PACKAGE, "")
        return machine.misfit(engine.target) or (ffi_mismatch(required) if required else "")

    def features_used(self, engine: EngineEntry) -> tuple[str, ...]:
        """Those of the instruction set that its kernels were compiled for; none on CUDA."""
        return tuple(engine.data.get("features", ()))

    def prepare(self) -> None:
        """Import the loader and tvm_ffi, which take as long as all the rest of a load."""
        from optc.backends.tvm.loaded import loader  # noqa: F401
        from optc.backends.tvm.runtime_libs import import_ffi

        import_ffi()

    def load(
        self, folder: Path, spec: EngineSpec, data: dict[str, Any], threads: int
    ) -> Executable:
        """Load what `build` wrote; see `optc.backends.tvm.loaded.loader.load_engine`."""
        if "cuda" in data:
            from optc.backends.tvm.cuda.loader import load_engine as load_cuda_engine

            return load_cuda_engine(folder, spec, data)
        from optc.backends.tvm.loaded.loader import load_engine

        return load_engine(folder, spec, data, threads)

    def step_costs(self, data: dict[str, Any]) -> StepCosts:
        """What a step of the engine must read and compute, as the build stated it."""
        from optc.errors import UnavailableError
        from optc.roofline.costs import StepCosts

        if "costs" not in data:
            raise UnavailableError(
                "the engine states no costs", where="tvm engine", hint="compile it again"
            )
        return StepCosts.from_json(data["costs"])

    def open_meter(
        self, folder: Path, data: dict[str, Any], threads: int, working_set_bytes: int
    ) -> Meter:
        """The ceilings by an engine's own loops; see `optc.backends.tvm.measuring.ceilings`."""
        _refuse_cuda(data)
        from optc.backends.tvm.measuring.ceilings import open_meter

        return open_meter(folder, data, threads, working_set_bytes)

    def build_meter(
        self, target: Target, folder: Path, threads: int, working_set_bytes: int
    ) -> Meter:
        """The ceilings compiled on their own; see `optc.backends.tvm.measuring.ceilings_build`."""
        from optc.backends.tvm.measuring.ceilings_build import build_meter

        return build_meter(target, folder, threads, working_set_bytes)

    def open_profiler(
        self, folder: Path, spec: EngineSpec, data: dict[str, Any], threads: int
    ) -> Profiler:
        """Load the engine for profiling; see `optc.backends.tvm.measuring.profile`."""
        _refuse_cuda(data)
        from optc.backends.tvm.measuring.profile import open_profiler

        return open_profiler(folder, spec, data, threads)


def _refuse_cuda(data: dict[str, Any]) -> None:
    """Raises:
    UnavailableError: The engine is one for CUDA, whose kernels and device nothing measures yet.
    """
    if "cuda" in data:
        from optc.errors import UnavailableError

        raise UnavailableError(
            "CUDA engines carry no loops that measure the device",
            where="tvm engine",
            hint="python -m benchmarks.cuda measures them on a GPU",
        )


BACKEND = TvmBackend()
