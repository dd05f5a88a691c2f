"""Engines of an encoder-decoder, opened: of named tensors, or a decoder of steps."""

from __future__ import annotations

from functools import partial
from pathlib import Path

from optc import registry
from optc.artifact.manifest import EngineEntry
from optc.backend import StepBackend
from optc.errors import InputError, UnsupportedError
from optc.runtime.encoded.request import Decoder
from optc.runtime.encoded.step_decoder import EncodedEngine, StepDecoder
from optc.runtime.encoded.tensor_decoder import TensorDecoder
from optc.runtime.executable.encoded import EncodedExecutable
from optc.runtime.executable.executable import StepInterface
from optc.runtime.executable.tensors import TensorsExecutable
from optc.runtime.settings import ServeSettings
from optc.runtime.tensors.engine import open_folder


def open_engine(folder: Path, entry: EngineEntry, threads: int) -> TensorsExecutable | StepDecoder:
    """The loaded engine whose files lie in ``folder``.

    Raises:
        UnsupportedError: Its steps attend to no encoder, or its backend runs no such engines.
        UnavailableError, ArtifactError: As the backend's load.
    """
    if not isinstance(entry.interface, StepInterface):
        return open_folder(folder, entry, threads)
    return StepDecoder(partial(load_encoded, folder, entry, entry.interface, threads))


def as_decoder(engine: TensorsExecutable | StepDecoder) -> Decoder:
    """The decoder's face of an engine."""
    return engine if isinstance(engine, StepDecoder) else TensorDecoder(engine)


def as_tensors(engine: object) -> TensorsExecutable:
    """The engine, which takes and gives named tensors.

    Raises:
        UnsupportedError: It runs steps.
    """
    if not isinstance(engine, TensorsExecutable):
        raise UnsupportedError("runs steps of a decoder, not named tensors", where="engine")
    return engine


def check_no_drafts(settings: ServeSettings, what: str) -> None:
    """Check that nothing is asked to draft for ``what``.

    Raises:
        InputError: ``settings.speculate`` or ``settings.draft`` does.
    """
    if settings.speculate not in (None, "off") or settings.draft is not None:
        raise InputError(
            f"nothing drafts tokens for {what}", where="speculate", hint="leave it out"
        )


def load_encoded(
    folder: Path, entry: EngineEntry, spec: StepInterface, threads: int
) -> EncodedEngine:
    """The engine of steps in ``folder``; raises as `open_engine`."""
    backend = registry.backend(entry.backend)
    if not isinstance(backend, StepBackend) or not spec.encoded or len(spec.groups) != 2:
        raise UnsupportedError(
            "its steps are no decoder's that attends to an encoder", where=f"engine {entry.name}"
        )
    engine = backend.load(folder, spec, entry.data, threads)
    if not isinstance(engine, EncodedExecutable):
        engine.close()
        raise UnsupportedError(
            f"the backend {entry.backend} runs no decoders that attend to an encoder",
            where=f"engine {entry.name}",
        )
    return engine
