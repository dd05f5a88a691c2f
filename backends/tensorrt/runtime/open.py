"""Open an engine's file on the first CUDA device."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from optc.backends.tensorrt.engine_data import EngineData
from optc.backends.tensorrt.provider import Provider, load_provider
from optc.backends.tensorrt.runtime.engine import ProfileRunner, contexts_of, uses_graphs
from optc.backends.tensorrt.runtime.executable import SlotExecutable
from optc.errors import ArtifactError, UnavailableError
from optc.runtime.executable.executable import StepInterface
from optc.system.hardware.cuda_device import CudaDevice, Device


def open_executable(path: Path, spec: StepInterface, data: EngineData) -> SlotExecutable:
    """The engine in ``path``, ready to run.

    Raises:
        UnavailableError: TensorRT or CUDA refuse it; in their words.
        ArtifactError: The engine's tensors are not those that the artifact states.
    """
    provider, device = load_provider(data.package), CudaDevice()
    log = _new_log(provider.module)
    engine = provider.module.Runtime(log).deserialize_cuda_engine(path.read_bytes())
    if engine is None:
        raise UnavailableError(
            f"TensorRT cannot load the engine: {' | '.join(log.errors) or 'no reason given'}",
            where=str(path),
        )
    check_tensors(engine, provider, data, str(path))
    return build_executable(provider, engine, device, spec, data)


def build_executable(
    provider: Provider, engine: Any, device: Device, spec: StepInterface, data: EngineData
) -> SlotExecutable:
    """The runners of a loaded engine's profiles."""
    limits = list(data.profiles)
    config = _runtime_config(provider, engine)
    contexts = contexts_of(engine, device, len(limits), config)
    runners = [
        ProfileRunner(
            context,
            device,
            limit,
            spec.vocab_size,
            data.inputs,
            graphs=uses_graphs(index, native=config is not None),
        )
        for index, (context, limit) in enumerate(zip(contexts, limits, strict=True))
    ]
    return SlotExecutable(spec, device, runners, limits, data.slot_length)


def check_tensors(engine: Any, provider: Provider, data: EngineData, where: str) -> None:
    """Check inputs, outputs and which of them share memory against what the build stated.

    Raises:
        ArtifactError: They differ; names the first that does.
    """
    names = {engine.get_tensor_name(index) for index in range(engine.num_io_tensors)}
    stated = {*data.inputs, *data.aliases, "logits"}
    if names != stated:
        odd = sorted(names ^ stated)
        raise ArtifactError(f"the engine and its manifest differ in {odd[0]}", where=where)
    for output, given in data.aliases.items():
        found = engine.get_aliased_input_tensor(output)
        if found != given:
            raise ArtifactError(
                f"{output} shares its memory with {found or 'nothing'}, not with {given}",
                where=where,
                hint="keys and values would be written elsewhere; compile the model again",
            )


def _runtime_config(provider: Provider, engine: Any) -> Any:
    """TensorRT-RTX captures graphs by itself; other packages have no such configuration."""
    strategies = getattr(provider.module, "CudaGraphStrategy", None)
    if strategies is None or not provider.capabilities.runtime_cache:
        return None
    config = engine.create_runtime_config()
    config.cuda_graph_strategy = strategies.WHOLE_GRAPH_CAPTURE
    config.set_runtime_cache(config.create_runtime_cache())
    return config


def _new_log(module: Any) -> Any:
    class Log(module.ILogger):
        def __init__(self) -> None:
            module.ILogger.__init__(self)
            self.errors: list[str] = []

        def log(self, severity: Any, text: str) -> None:
            if severity.name in ("ERROR", "INTERNAL_ERROR"):
                self.errors.append(" ".join(text.split()))

    return Log()
