"""The common parts of the TVM backends for CPUs (`optc.backends.tvm`) and for CUDA
(`optc.backends.tvm_cuda`)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from optc.backends.tvm.engine_files import WEIGHTS_FILE

if TYPE_CHECKING:
    import onnx_ir as ir

    from optc.artifact.files import EngineFiles
    from optc.artifact.manifest import EngineEntry
    from optc.backend import StoredTensor, Support
    from optc.proof.roofline.costs import StepCosts
    from optc.system.hardware.machine import Machine
    from optc.system.hardware.target import Target


class TvmBackendBase:
    """The parts of `optc.backend.Backend` that do not depend on the kind of target."""

    weight_files = frozenset({WEIGHTS_FILE})

    def available(self) -> str:
        """Empty if the host's part of engines can be built here, else what is missing and how to
        get it."""
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

    def kv_pools(self, dtype: str, target: Target) -> Support:
        """Native where kernels of CPUs read pools of ``dtype``."""
        from optc.backend import NATIVE, Support
        from optc.backends.tvm.kv_layout import pool_problem

        reason = pool_problem(dtype)
        return Support("unsupported", reason) if reason else NATIVE

    def weight_layout(self, target: Target) -> str:
        """All targets have one layout of packed weights (docs/normal-form.md)."""
        return "tvm"

    def can_load(self, engine: EngineEntry, machine: Machine) -> str:
        """Empty if the machine has what the engine's target needs and its release of tvm_ffi."""
        from optc.backends.tvm.runtime_libs import FFI_PACKAGE, ffi_mismatch

        required = engine.requires.get(FFI_PACKAGE, "")
        return machine.misfit(engine.target) or (ffi_mismatch(required) if required else "")

    def stored_tensors(self, engine: EngineEntry, files: EngineFiles) -> list[StoredTensor]:
        """The packed tensors of the file of weights, which may be another engine's."""
        from optc.backends.tvm.engine_data import stored_tensors

        return stored_tensors(engine.data, files)

    def step_costs(self, data: dict[str, Any]) -> StepCosts:
        """The costs of a step of the engine, as the build stated them."""
        from optc.errors import UnavailableError
        from optc.proof.roofline.costs import StepCosts

        if data.get("costs") is None:
            raise UnavailableError(
                "the engine states no costs", where="tvm engine", hint="compile it again"
            )
        return StepCosts.from_json(data["costs"])


def lowering_support(node: ir.Node, *refusals: Any) -> Support:
    """Native where the lowering takes ``node`` and none of ``refusals`` gives a reason."""
    from optc.backend import NATIVE, Support
    from optc.backends.tvm.lowering.lower_model import HANDLERS
    from optc.backends.tvm.lowering.walk import check_node

    reasons = (check_node(node, HANDLERS), *(refusal(node) for refusal in refusals))
    reason = next(filter(None, reasons), "")
    return Support("unsupported", reason) if reason else NATIVE
