"""Execution providers: which one a target means, and the proof that a session has it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from optc.backends.onnxruntime.packages import import_onnxruntime
from optc.errors import UnavailableError

_WHERE = "onnxruntime backend"
CPU, CUDA, TENSORRT = (f"{name}ExecutionProvider" for name in ("CPU", "CUDA", "Tensorrt"))
#: Of a DequantizeLinear of 4 bits before a MatMul; the default is 4, activations of 8 bits.
_FLOAT_ACTIVATIONS = ("session.qdq_matmulnbits_accuracy_level", "1")


@dataclass(frozen=True)
class Device:
    """The device that a session runs on and its tensors lie on.

    Attributes:
        provider: Name of the execution provider.
        kind: ``cpu`` or ``cuda``, as ONNX Runtime names devices.
    """

    provider: str
    kind: str


def device_of(provider: str) -> Device:
    """The device of an execution provider."""
    return Device(provider, "cpu" if provider == CPU else "cuda")


def open_session(
    model: Path, provider: str, threads: int, *, as_it_is: bool = False, exact: bool = False
) -> Any:
    """An ``onnxruntime.InferenceSession`` that runs on ``provider``.

    Args:
        model: The file.
        provider: What runs it.
        threads: Within an operator.
        as_it_is: Leave out the optimizations that change results: by default a DequantizeLinear
            before a MatMul makes ONNX Runtime quantize the activations too.
        exact: Keep the activations of such a MatMul in float32, with all optimizations.

    Raises:
        UnavailableError: The package is not usable, or the provider cannot run here: ONNX Runtime
            by itself would say so in its log only, and take the CPU.
    """
    device = device_of(provider)
    ort = import_onnxruntime(device.kind)
    offered = ort.get_available_providers()
    if provider not in offered:
        raise UnavailableError(
            f"the installed ONNX Runtime {ort.__version__} has no {provider}",
            where=_WHERE,
            hint=f"it offers {', '.join(offered)}",
        )
    options = ort.SessionOptions()
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    options.log_severity_level = 4  # an error is an exception, which says the same
    if as_it_is:
        options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_ENABLE_BASIC
    if exact:
        options.add_session_config_entry(*_FLOAT_ACTIVATIONS)
    wanted = [provider] if provider == CPU else [(provider, _options(provider)), CPU]
    session = ort.InferenceSession(str(model), options, providers=wanted)
    running = session.get_providers()[0]
    if running != provider:
        raise UnavailableError(
            f"{provider} could not be started: ONNX Runtime took {running} instead",
            where=_WHERE,
            hint="its log says why; the libraries of CUDA and cuDNN that its release needs must be "
            "found, and a driver that supports them",
        )
    return session


def _options(provider: str) -> dict[str, str]:
    if provider == TENSORRT:
        return {"trt_fp16_enable": "1"}
    return {"use_tf32": "0"}
