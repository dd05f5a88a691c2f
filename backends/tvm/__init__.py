"""The TVM backend: CPU engines built ahead of time. Importing it loads neither TVM nor NumPy."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from optc.backends.tvm.common import TvmBackendBase, lowering_support

if TYPE_CHECKING:
    from collections.abc import Mapping

    import onnx_ir as ir

    from optc.artifact.files import EngineFiles
    from optc.artifact.manifest import EngineEntry
    from optc.backend import BuildOptions, EngineBuild, Support
    from optc.ir.engine_weights import EngineWeight
    from optc.proof.roofline.ceilings import Meter
    from optc.proof.roofline.estimate import EngineEstimate
    from optc.proof.roofline.measurable import Profiler
    from optc.runtime.executable.executable import Executable, StepInterface
    from optc.runtime.executable.tensors import TensorsExecutable
    from optc.runtime.executable.tensors_interface import TensorsInterface
    from optc.system.hardware.target import Target

__all__ = ["BACKEND", "TvmBackend"]


class TvmBackend(TvmBackendBase):
    """`optc.backend.Backend` on Apache TVM, for CPUs."""

    name = "tvm"
    preference = 20

    def takes(self, target: Target) -> str:
        """Empty if ``target`` is a CPU, else the reason."""
        return "" if target.kind == "cpu" else f"its kernels run on CPUs, not on {target.kind}"

    def supports(self, node: ir.Node, target: Target) -> Support:
        """Native where ``node`` has a kernel for ``target``."""
        from optc.backend import Support
        from optc.backends.tvm.isa import isa_of
        from optc.errors import UnavailableError

        try:
            isa_of(target)
        except UnavailableError as error:
            return Support("unsupported", error.message)
        return lowering_support(node)

    def lacks(self, target: Target) -> str:
        """Empty if the linker and runtime libraries for the target's platform are here."""
        from optc.backends.tvm.compiling.link import linker_command
        from optc.backends.tvm.runtime_fetch import lacking
        from optc.errors import UnavailableError

        try:
            linker_command(target.platform)
        except UnavailableError as error:
            return error.render()
        return lacking(target.platform)

    def fetch(self, target: Target) -> str:
        """Get the runtime libraries for the target's platform from the package index."""
        from optc.backends.tvm.runtime_fetch import fetch, lacking

        if not lacking(target.platform):
            return "nothing to fetch: the runtime libraries are here"
        return f"runtime libraries of TVM: {fetch(target.platform)}"

    def gives_hidden(self, target: Target) -> bool:
        """CPU engines do."""
        return target.kind == "cpu"

    def estimate(self, model: ir.Model, target: Target, options: BuildOptions) -> EngineEstimate:
        """The estimate that the lowering alone gives; see `optc.backends.tvm.lowering.estimate`."""
        from optc.backends.tvm.isa import isa_of
        from optc.backends.tvm.lowering.estimate import estimate_engine

        return estimate_engine(model, target, options, isa_of(target).peaks)

    def build(
        self, model: ir.Model, target: Target, workdir: Path, options: BuildOptions
    ) -> EngineBuild:
        """Build the ragged-step model; see `optc.backends.tvm.compiling.build.build_engine`."""
        from optc.backends.tvm.compiling.build import build_engine

        return build_engine(model, target, workdir, options)

    def check(self, engine: EngineEntry, files: EngineFiles) -> None:
        """Check ``engine.data`` and the files that it leads to."""
        from optc.backends.tvm.engine_data import CpuEngineData, read_data
        from optc.backends.tvm.packed_data import read_packed
        from optc.runtime.executable.tensors_interface import TensorsInterface

        if isinstance(engine.interface, TensorsInterface):
            data: CpuEngineData = read_packed(engine.data, engine.interface)
        else:
            data = read_data(engine.data)
        data.check_files(files, engine.target.system)

    def features_used(self, engine: EngineEntry) -> tuple[str, ...]:
        """Those of the instruction set that its kernels were compiled for."""
        return tuple(engine.data.get("features", ()))

    def prepare(self) -> None:
        """Import the loader and tvm_ffi, which take as long as all the rest of a load."""
        from optc.backends.tvm.loaded import loader  # noqa: F401
        from optc.backends.tvm.runtime_libs import import_ffi

        import_ffi()

    def load(
        self, folder: Path, spec: StepInterface, data: dict[str, Any], threads: int
    ) -> Executable:
        """Load what `build` wrote; see `optc.backends.tvm.loaded.loader.load_engine`."""
        from optc.backends.tvm.loaded.loader import load_engine

        return load_engine(folder, spec, data, threads)

    def load_resident(
        self,
        folder: Path,
        spec: StepInterface,
        data: dict[str, Any],
        threads: int,
        resident: int,
    ) -> Executable:
        """As `load`, with at most so many bytes of weights that stay in memory."""
        from optc.backends.tvm.loaded.loader import load_engine

        return load_engine(folder, spec, data, threads, resident)

    def build_tensors(
        self, model: ir.Model, interface: TensorsInterface, target: Target, workdir: Path
    ) -> EngineBuild:
        """Build an encoder over packed rows; see
        `optc.backends.tvm.compiling.build_encoder.build_encoder`."""
        from optc.backends.tvm.compiling.build_encoder import build_encoder

        return build_encoder(model, interface, target, workdir)

    def load_tensors(
        self, folder: Path, interface: TensorsInterface, data: dict[str, Any], threads: int
    ) -> TensorsExecutable:
        """Load what `build_tensors` wrote; see `optc.backends.tvm.loaded.packed.load_encoder`."""
        from optc.backends.tvm.loaded.packed import load_encoder

        return load_encoder(folder, interface, data, threads)

    def open_meter(
        self, folder: Path, data: dict[str, Any], threads: int, working_set_bytes: int
    ) -> Meter:
        """The ceilings by an engine's own loops; see `optc.backends.tvm.measuring.ceilings`."""
        from optc.backends.tvm.measuring.ceilings import open_meter

        return open_meter(folder, data, threads, working_set_bytes)

    def build_meter(
        self, target: Target, folder: Path, threads: int, working_set_bytes: int
    ) -> Meter:
        """The ceilings compiled on their own; see `optc.backends.tvm.measuring.ceilings_build`."""
        from optc.backends.tvm.measuring.ceilings_build import build_meter

        return build_meter(target, folder, threads, working_set_bytes)

    def open_profiler(
        self, folder: Path, spec: StepInterface, data: dict[str, Any], threads: int
    ) -> Profiler:
        """Load the engine for profiling; see `optc.backends.tvm.measuring.profile`."""
        from optc.backends.tvm.measuring.profile import open_profiler

        return open_profiler(folder, spec, data, threads)

    def engine_weights(self, engine: EngineEntry, files: EngineFiles) -> Mapping[str, EngineWeight]:
        """The weights of the file by rows; see `optc.backends.tvm.weights.stored_weights`."""
        from optc.backends.tvm.engine_data import stored_tensors
        from optc.backends.tvm.weights.stored_weights import stored_weights

        return stored_weights(stored_tensors(engine.data, files))


BACKEND = TvmBackend()
