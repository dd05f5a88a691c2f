"""The TensorRT backend: engines for NVIDIA GPUs, most of them built ahead of time, without a GPU.

Importing it loads neither TensorRT nor NumPy.
"""

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
    from optc.system.hardware.machine import Machine
    from optc.system.hardware.target import Target

__all__ = ["BACKEND", "TensorRTBackend"]


class TensorRTBackend:
    """`optc.backend.Backend` on NVIDIA TensorRT and TensorRT-RTX."""

    name = "tensorrt"
    preference = 40

    def available(self) -> str:
        """Empty if engines can be built here, else what is missing and how to get it."""
        from optc.backends.tensorrt.provider import missing_reason

        return missing_reason()

    def takes(self, target: Target) -> str:
        """Empty if TensorRT-RTX or TensorRT has kernels for all architectures of ``target``."""
        from optc.backends.tensorrt.targets import refusal

        return refusal(target)

    def lacks(self, target: Target) -> str:
        """Empty if the package for the target is here, and a GPU where it builds for that alone."""
        from optc.backends.tensorrt.targets import lacks
        from optc.system.hardware.machine import this_machine

        return lacks(target, this_machine())

    def fetch(self, target: Target) -> str:
        """Nothing can be fetched beside the packages: says what is missing."""
        missing = self.lacks(target)
        return f"nothing to fetch: {missing or 'all that a build needs is here'}"

    def supports(self, node: ir.Node, target: Target) -> Support:
        """The support of a node of the ragged step, by its legalization."""
        from optc.backends.tensorrt.support import support_of

        return support_of(node, target)

    def kv_pools(self, dtype: str, target: Target) -> Support:
        """Slots of the type that the engine computes in; see `optc.backends.tensorrt.support`."""
        from optc.backends.tensorrt.support import kv_pools

        return kv_pools(dtype)

    def weight_layout(self, target: Target) -> str:
        """None: an engine has its weights in it."""
        return ""

    def build(
        self, model: ir.Model, target: Target, workdir: Path, options: BuildOptions
    ) -> EngineBuild:
        """Build the ragged-step model; see `optc.backends.tensorrt.build.build_engine`."""
        from optc.backends.tensorrt.build import build_engine

        return build_engine(model, target, workdir, options)

    def estimate(self, model: ir.Model, target: Target, options: BuildOptions) -> EngineEstimate:
        """The bytes of the engine and the costs of its steps (`optc.proof.roofline.estimate`)."""
        from optc.backends.tensorrt.estimate import estimate_engine

        return estimate_engine(model, target, options)

    def check(self, engine: EngineEntry, files: EngineFiles) -> None:
        """Check ``engine.data`` and the engine's file."""
        from optc.backends.tensorrt.engine_data import check_files, read_data

        check_files(read_data(engine.data), files)

    def stored_tensors(self, engine: EngineEntry, files: EngineFiles) -> list[StoredTensor]:
        """The weights by the list that a build leaves (`optc.backends.tensorrt.tensor_list`)."""
        from optc.backends.tensorrt.tensor_list import TENSORS_FILE, read_tensors

        return read_tensors(TENSORS_FILE in engine.files, files)

    def can_load(self, engine: EngineEntry, machine: Machine) -> str:
        """Empty if the machine's first GPU is one of the engine's, and the release of TensorRT is
        that which built it."""
        from optc.backends.tensorrt.loading import gpu_mismatch, release_mismatch

        return gpu_mismatch(engine.target, machine) or release_mismatch(engine.requires)

    def features_used(self, engine: EngineEntry) -> tuple[str, ...]:
        """None: it runs on a CUDA device."""
        return ()

    def load(
        self, folder: Path, spec: StepInterface, data: dict[str, Any], threads: int
    ) -> Executable:
        """Load what `build` wrote; see `optc.backends.tensorrt.loading.load_engine`."""
        from optc.backends.tensorrt.loading import load_engine

        return load_engine(folder, spec, data)


BACKEND = TensorRTBackend()
