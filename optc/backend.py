"""The interface that every backend implements; found by name through entry points."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from optc.runtime.executable import EngineSpec, Executable
from optc.target import Target

if TYPE_CHECKING:  # onnx_ir is a compile-time package; the runtime must not need it
    import onnx_ir as ir


@dataclass(frozen=True)
class EngineBuild:
    """What a backend's build returns.

    Attributes:
        files: Paths relative to the work folder; all go into the artifact.
        spec: Limits and KV shape of the engine.
        requires: Versions of runtime packages that load checks, e.g. ``apache-tvm-ffi``.
        backend_data: JSON of the backend's own, stored in the manifest and given back at load.
        report: Figures for report.json (times, bytes, kernel table); not part of the digest.
        warnings: What the user should know, one sentence each.
    """

    files: tuple[str, ...]
    spec: EngineSpec
    requires: dict[str, str]
    backend_data: dict[str, Any]
    report: dict[str, Any] = field(default_factory=dict)
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True)
class SharedWeights:
    """Another engine of the artifact that has all weights of the one to be built.

    Attributes:
        folder: Its folder, relative to that of the new engine.
        data: Its ``backend_data``.
    """

    folder: str
    data: dict[str, Any]


@dataclass(frozen=True)
class BuildOptions:
    """Limits that a build bakes in.

    Attributes:
        max_context: Longest sequence in tokens.
        max_rows: Largest T of one step.
        max_sequences: Largest B of one step.
        max_logit_rows: Largest R of one step.
        max_ram_bytes: Memory limit for the build's own processes; 0 is none.
        shared: Whose weights the engine reads instead of a file of its own; None is a file.
        tune: Measure kernel schedules that ``schedules`` lacks, and add them to it.
        schedules: The user's file of kernel schedules; None is none, or with ``tune`` that of the
            user's cache. A backend without schedules ignores both.
    """

    max_context: int
    max_rows: int = 512
    max_sequences: int = 64
    max_logit_rows: int = 256
    max_ram_bytes: int = 0
    shared: SharedWeights | None = None
    tune: bool = False
    schedules: Path | None = None


class Backend(Protocol):
    """Lowers and builds a model, and loads what it built."""

    name: str

    def available(self) -> str:
        """Empty if the backend can build here, else the reason and how to mend it."""
        ...

    def supports(self, node: ir.Node, target: Target) -> str:
        """Empty if the node can be lowered for the target, else the reason."""
        ...

    def build(
        self, model: ir.Model, target: Target, workdir: Path, options: BuildOptions
    ) -> EngineBuild:
        """Build the ragged-step model into files under ``workdir``.

        Raises:
            optc.errors.UnsupportedError: A node cannot be lowered; names it and why.
            optc.errors.UnavailableError: The compiler or linker is missing.
        """
        ...

    def load(
        self, folder: Path, spec: EngineSpec, data: dict[str, Any], threads: int
    ) -> Executable:
        """Load the engine whose files lie in ``folder``; must not import the compiler."""
        ...
