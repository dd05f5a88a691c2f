"""The ONNX Runtime backend: CPU and CUDA execution providers. Importing it loads neither."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import onnx_ir as ir

    from optc.artifact.files import EngineFiles
    from optc.artifact.manifest import EngineEntry
    from optc.backend import BuildOptions, EngineBuild, StoredTensor, Support
    from optc.proof.roofline.estimate import EngineEstimate
    from optc.runtime.executable.executable import Executable, StepInterface
    from optc.runtime.executable.tensors import TensorsExecutable
    from optc.runtime.executable.tensors_interface import TensorsInterface
    from optc.system.hardware.machine import Machine
    from optc.system.hardware.target import Target

__all__ = ["BACKEND", "OnnxRuntimeBackend"]


class OnnxRuntimeBackend:
    """`optc.backend.Backend` on ONNX Runtime."""

    name = "onnxruntime"
    preference = 10
    weight_files = frozenset({"weights.bin"})

    def available(self) -> str:
        """Empty if engines can be built here, else what is wrong and how to mend it.

        Building for any target needs one of the packages, to compute rotary tables."""
        from optc.backends.onnxruntime.packages import installed, problem

        return problem("cuda" if "onnxruntime-gpu" in installed() else "cpu")

    def takes(self, target: Target) -> str:
        """Empty for CPUs and CUDA devices: one engine runs on all of a kind."""
        known = target.kind in ("cpu", "cuda")
        return "" if known else f"the onnxruntime backend does not know {target.kind} targets"

    def supports(self, node: ir.Node, target: Target) -> Support:
        """Native where ONNX Runtime has an operator for ``node``, else what becomes of it."""
        from optc.backends.onnxruntime.support import support_of

        return support_of(node, target)

    def kv_pools(self, dtype: str, target: Target) -> Support:
        """Pages of float16 on CUDA, where they are asked for; else slots of what is computed in."""
        from optc.backends.onnxruntime.support import kv_pools

        return kv_pools(dtype, target)

    def weight_layout(self, target: Target) -> str:
        """None: a model refers to weights beside it only."""
        return ""

    def build(
        self, model: ir.Model, target: Target, workdir: Path, options: BuildOptions
    ) -> EngineBuild:
        """Build the ragged-step model; see `optc.backends.onnxruntime.build.build_engine`."""
        from optc.backends.onnxruntime.build import build_engine

        return build_engine(model, target, workdir, options)

    def estimate(self, model: ir.Model, target: Target, options: BuildOptions) -> EngineEstimate:
        """The bytes of the engine and the costs of its steps (`optc.proof.roofline.estimate`)."""
        from optc.backends.onnxruntime.estimate import estimate_engine

        return estimate_engine(model, target, options)

    def check(self, engine: EngineEntry, files: EngineFiles) -> None:
        """Check ``engine.data`` and the files that a load opens."""
        from optc.backends.onnxruntime.engine_data import check_engine

        check_engine(engine, files)

    def stored_tensors(self, engine: EngineEntry, files: EngineFiles) -> list[StoredTensor]:
        """The tensors beside the model; see `optc.backends.onnxruntime.stored`."""
        from optc.backends.onnxruntime.stored import stored_tensors

        return stored_tensors(files)

    def can_load(self, engine: EngineEntry, machine: Machine) -> str:
        """Empty if the machine suits the engine's target and its ONNX Runtime is usable."""
        from optc.backends.onnxruntime.engine_data import read_data
        from optc.backends.onnxruntime.loader import unusable

        data = read_data(engine.data)
        return machine.misfit(engine.target) or unusable(data.provider, data.release)

    def features_used(self, engine: EngineEntry) -> tuple[str, ...]:
        """None: ONNX Runtime picks its kernels when it is loaded."""
        return ()

    def load(
        self, folder: Path, spec: StepInterface, data: dict[str, Any], threads: int
    ) -> Executable:
        """Load what `build` wrote; see `optc.backends.onnxruntime.loader.load_engine`."""
        from optc.backends.onnxruntime.loader import load_engine

        return load_engine(folder, spec, data, threads)

    def build_tensors(
        self,
        model: ir.Model,
        interface: TensorsInterface,
        target: Target,
        workdir: Path,
    ) -> EngineBuild:
        """Build a model of named tensors (`optc.backend.TensorsBuilder`)."""
        from optc.backends.onnxruntime.tensors import build_tensors

        return build_tensors(model, interface, target, workdir)

    def load_tensors(
        self, folder: Path, interface: TensorsInterface, data: dict[str, Any], threads: int
    ) -> TensorsExecutable:
        """Load what `build_tensors` wrote."""
        from optc.backends.onnxruntime.tensors import load_tensors

        return load_tensors(folder, interface, data, threads)

    def open_lowered(self, model: Path, spec: StepInterface, threads: int) -> Executable:
        """Run what another backend lowered (`optc.backend.LoweredOnnxBackend`)."""
        from optc.backends.onnxruntime.loader import open_lowered

        return open_lowered(model, spec, threads)


BACKEND = OnnxRuntimeBackend()
