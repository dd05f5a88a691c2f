"""Loading an engine: its files, the release it was built for, its execution provider."""

from __future__ import annotations

from functools import cache, partial
from pathlib import Path
from typing import Any

from optc.artifact.spec_digest import spec_digest
from optc.backends.onnxruntime.engine_data import MODEL_FILE, SPEC_METADATA, WEIGHTS_FILE, read_data
from optc.backends.onnxruntime.executable import SlotExecutable
from optc.backends.onnxruntime.memory import DeviceMemory, HostMemory
from optc.backends.onnxruntime.packages import (
    installed,
    problem,
    version_problem,
)
from optc.backends.onnxruntime.pages import PagedExecutable
from optc.backends.onnxruntime.providers import CPU, device_of, open_session
from optc.backends.onnxruntime.slots import MakeMemory
from optc.errors import ArtifactError, UnavailableError
from optc.runtime.executable.executable import StepInterface
from optc.system.hardware.cuda_device import CudaDevice


def load_engine(
    folder: Path, spec: StepInterface, data: dict[str, Any], threads: int
) -> SlotExecutable | PagedExecutable:
    """Load what `optc.backends.onnxruntime.build.build_engine` wrote into ``folder``.

    Raises:
        ArtifactError: A file is missing or damaged, or the spec is not that of the model.
        UnavailableError: ONNX Runtime is missing or too old, or its provider does not start, or
            there is no driver.
    """
    found = read_data(data)
    provider = found.provider
    why = unusable(provider, found.release)
    if why:
        raise UnavailableError(why, where="onnxruntime engine")
    session = open_model(folder / MODEL_FILE, provider, threads)
    _check_spec(session, spec)
    memory = _memory(device_of(provider).kind)
    if spec.kv_layout == "paged":
        return PagedExecutable(session, spec, memory)
    return SlotExecutable(session, spec, memory)


def _check_spec(session: Any, spec: StepInterface) -> None:
    """Check that the model was built with this spec, if it says so: older ones do not.

    Raises:
        ArtifactError: It was built with another.
    """
    digest = session.get_modelmeta().custom_metadata_map.get(SPEC_METADATA)
    if digest is not None and digest != spec_digest(spec).hex():
        raise ArtifactError(
            "the manifest describes another engine: its limits or KV shape are not those that the "
            "model was built with",
            where=MODEL_FILE,
            hint="copy the artifact again or compile the model again",
        )


def open_model(model: Path, provider: str, threads: int, *, exact: bool = False) -> Any:
    """A session on the model of an artifact; ``exact`` as in `open_session`.

    Raises:
        ArtifactError: The model, or its weights beside it, are missing or damaged.
    """
    for path in (model, model.with_name(WEIGHTS_FILE)):
        if not path.is_file():
            raise ArtifactError(
                "the file is missing",
                where=path.name,
                hint="the artifact is incomplete: copy it again",
            )
    from onnxruntime.capi import onnxruntime_pybind11_state as ort

    try:
        return open_session(model, provider, threads, exact=exact)
    except (
        ort.Fail,
        ort.InvalidArgument,
        ort.InvalidGraph,
        ort.InvalidProtobuf,
        ort.NotImplemented,
        ort.RuntimeException,
    ) as error:
        raise ArtifactError(
            f"ONNX Runtime cannot open the model: {str(error).splitlines()[0]}",
            where=str(model),
            hint="the file is damaged: compile or copy the artifact again",
        ) from error


def _memory(kind: str) -> MakeMemory:
    if kind == "cpu":
        return HostMemory
    return partial(DeviceMemory, _gpu(), kind)


@cache
def _gpu() -> CudaDevice:
    """The device by which all engines of this process copy."""
    return CudaDevice()


def open_lowered(model: Path, spec: StepInterface, threads: int) -> SlotExecutable:
    """Load any model in slot form on the CPU (`optc.backend.LoweredOnnxBackend`).

    Raises:
        UnavailableError: ONNX Runtime is missing or too old.
    """
    return SlotExecutable(open_session(model, CPU, threads, as_it_is=True), spec)


def unusable(provider: str, release: str) -> str:
    """Empty if the installed packages run engines for ``provider`` that were built with
    ``release``, else the reason."""
    why = problem(device_of(provider).kind)
    if why:
        return why
    return next(filter(None, (version_problem(n, v, release) for n, v in installed().items())), "")
