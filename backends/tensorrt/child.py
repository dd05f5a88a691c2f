"""The builder's own process (`optc.system.processes.child_job`): it reads a `BuildJob` and writes
the engine."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path
from typing import Any

from optc.backends.tensorrt.build_job import BuildJob
from optc.backends.tensorrt.provider import (
    Provider,
    create_network,
    load_provider,
    set_architectures,
)
from optc.errors import UnavailableError, UnsupportedError
from optc.system.processes.child_job import answer
from optc.system.processes.process_memory import own_peak_bytes

#: Messages that begin so hold the table of layers of one or more profiles.
TABLE = "Layers:"
#: Severities that fail a build even if it gives an engine.
_FAILURES = ("INTERNAL_ERROR", "ERROR")


def build(provider: Provider, request: BuildJob) -> dict[str, Any]:
    """Build the engine; returns figures for the report.

    Raises:
        UnsupportedError: The parser or the builder refuses the model, in TensorRT's words.
        UnavailableError: The package cannot build for the GPUs.
    """
    started = time.perf_counter()
    log = _new_log(provider.module)
    builder = provider.module.Builder(log)
    network = create_network(provider, builder)
    _parse(provider, network, log, request.model)
    parsed = time.perf_counter()
    config = builder.create_builder_config()
    config.profiling_verbosity = provider.module.ProfilingVerbosity.DETAILED
    if request.sparse:
        config.set_flag(provider.module.BuilderFlag.SPARSE_WEIGHTS)
    set_architectures(provider, config, request.architectures)
    _add_profiles(builder, network, config, request)
    engine = builder.build_serialized_network(network, config)
    _raise_failures(log)
    if engine is None:
        raise UnsupportedError("the builder gave no engine", where="tensorrt backend")
    Path(request.engine).write_bytes(engine)
    tables = [text for severity, text in log.messages if text.startswith(TABLE)]
    Path(request.table).write_text("\n".join(tables), encoding="utf-8")
    return {
        "package": provider.package,
        "version": provider.version,
        "capabilities": provider.capabilities.to_json(),
        "parse_seconds": parsed - started,
        "builder_seconds": time.perf_counter() - parsed,
        "builder_peak_bytes": own_peak_bytes(),
        "engine_bytes": engine.nbytes,
        "network_layers": network.num_layers,
        "sparse_weights": config.get_flag(provider.module.BuilderFlag.SPARSE_WEIGHTS),
        "said": sorted({text for severity, text in log.messages if severity == "WARNING"}),
    }


def build_with(request: BuildJob) -> dict[str, Any]:
    """Build the engine with the package that is asked for; as `build`."""
    return build(load_provider(request.package), request)


def _new_log(module: Any) -> Any:
    """A logger that keeps every message; its class exists only once the package is loaded."""

    class Log(module.ILogger):
        def __init__(self) -> None:
            module.ILogger.__init__(self)
            self.messages: list[tuple[str, str]] = []

        def log(self, severity: Any, text: str) -> None:
            if severity.name != "VERBOSE" or text.startswith(TABLE):
                self.messages.append((severity.name, text))

    return Log()


def _parse(provider: Provider, network: Any, log: Any, model: str) -> None:
    parser = provider.module.OnnxParser(network, log)
    if parser.parse_from_file(model):
        return
    errors = [parser.get_error(index) for index in range(parser.num_errors)]
    said = [f"{e.node_operator()} {e.node_name()}: {e.desc()}" for e in errors]
    raise UnsupportedError(
        "; ".join(said[:3]) or "the model could not be parsed", where="TensorRT's parser"
    )


def _add_profiles(builder: Any, network: Any, config: Any, request: BuildJob) -> None:
    inputs = [network.get_input(index) for index in range(network.num_inputs)]
    for profile in request.profiles:
        made = builder.create_optimization_profile()
        for tensor in inputs:
            if -1 not in tuple(tensor.shape):
                continue
            if tensor.name not in profile.shapes:
                raise UnsupportedError(
                    f"the profile {profile.name} gives no shapes for the input {tensor.name}",
                    where="tensorrt backend",
                )
            made.set_shape(tensor.name, *profile.shapes[tensor.name])
        config.add_optimization_profile(made)


def _raise_failures(log: Any) -> None:
    said = [text for severity, text in log.messages if severity in _FAILURES]
    if not said:
        return
    text = " | ".join(" ".join(message.split()) for message in said[:3])
    error = UnavailableError if "cudaError" in text else UnsupportedError
    raise error(text, where="TensorRT's builder")


if __name__ == "__main__":
    status = answer(sys.argv[1:], lambda asked: build_with(BuildJob.from_json(asked)))
    # a logger written in Python may be called while the interpreter ends: do not let it come so far
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)
