"""The interface that every backend implements; found by name through entry points."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Protocol, runtime_checkable

from optc.errors import UnsupportedError
from optc.runtime.executable.executable import Executable, KVGroup, LayerKV, StepInterface
from optc.runtime.executable.interface import Interface
from optc.runtime.executable.tensors import TensorsExecutable
from optc.runtime.executable.tensors_interface import TensorsInterface
from optc.system.hardware.target import Target

if TYPE_CHECKING:
    import onnx_ir as ir  # a compile-time package; the runtime must not need it

    # The package `optc.artifact` opens artifacts, for which it looks backends up.
    from optc.artifact.files import EngineFiles
    from optc.artifact.manifest import EngineEntry
    from optc.system.hardware.machine import Machine


@dataclass(frozen=True)
class Support:
    """The way in which a backend takes a node of the ragged step.

    Attributes:
        how: ``native`` as one operation of its own, ``decomposed`` into several, or rewritten so
            that another operator does it, or ``unsupported``.
        reason: Into what it is decomposed, or why it is not supported; empty where native.
    """

    how: Literal["native", "decomposed", "unsupported"] = "native"
    reason: str = ""


#: The node is one operation of the backend.
NATIVE = Support()


@dataclass(frozen=True)
class EngineBuild:
    """The result of a backend's build.

    Attributes:
        files: Paths relative to the work folder; all go into the artifact.
        spec: How the engine is called, with its limits and shapes.
        requires: Versions of runtime packages that load checks, e.g. ``apache-tvm-ffi``.
        backend_data: JSON of the backend's own, stored in the manifest and given back at load.
        report: Figures for report.json (times, bytes, kernel table); not part of the digest.
        warnings: What the user should know, one sentence each.
        weight_bytes: Of weights in ``files``; 0 where the engine reads another's.
        lowered_onnx: Outside the artifact (in ``BuildOptions.scratch``), or one of ``files`` where
            the engine is such a model: the model as the engine
            computes it, in slot form and with its arithmetic as far as possible, which a
            `LoweredOnnxBackend` runs where the engine cannot be run; None offers none.
        computes_in: The type of values between operators: ``float16`` is checked for overflow.
    """

    files: tuple[str, ...]
    spec: Interface
    requires: dict[str, str]
    backend_data: dict[str, Any]
    report: dict[str, Any] = field(default_factory=dict)
    warnings: tuple[str, ...] = ()
    weight_bytes: int = 0
    lowered_onnx: Path | None = None
    computes_in: str = "float32"


@dataclass(frozen=True)
class SharedWeights:
    """Another engine of the artifact that has the weights of the one to be built.

    Attributes:
        folder: Its folder, relative to that of the new engine.
        data: Its ``backend_data``.
        partial: It may lack some, which the new engine gets a file of its own for.
        platform: What its code is for (`optc.system.hardware.target.Target.platform`); empty is
            this machine.
    """

    folder: str
    data: dict[str, Any]
    partial: bool = False
    platform: str = ""


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
        readers: Targets of later engines that will share the weights of this one.
        scratch: An empty folder for files that must not come into the artifact; it is removed
            after the gates. None is none.
    """

    max_context: int
    max_rows: int = 512
    max_sequences: int = 64
    max_logit_rows: int = 256
    max_ram_bytes: int = 0
    shared: SharedWeights | None = None
    readers: tuple[Target, ...] = ()
    scratch: Path | None = None


def slot_engine_spec(
    model: ir.Model, options: BuildOptions, layers: Sequence[LayerKV]
) -> StepInterface:
    """The interface of the engine that a model in slot form gives.

    Args:
        model: Its first output is the logits, with a static width.
        options: Limits.
        layers: Keys and values of a slot, all in group 0.
    """
    logits = model.graph.outputs[0].shape
    if logits is None or not isinstance(logits[-1], int):
        raise ValueError("the logits have no static width")
    return StepInterface(
        vocab_size=logits[-1],
        max_context=options.max_context,
        max_rows=options.max_rows,
        max_sequences=options.max_sequences,
        max_logit_rows=options.max_logit_rows,
        block_multiple=1,
        batch_invariant=False,
        groups=(KVGroup(0, tuple(range(len(layers)))),),
        layers=tuple(layers),
        kv_layout="slots",
    )


class Backend(Protocol):
    """A compiler of models, whatever their interface is: what all engines have in common.

    A backend is a `StepBackend`, a `TensorsBuilder`, or both.

    Attributes:
        name: As in the entry point.
        preference: Of engines between which nothing else decides, the one of the backend with the
            largest is loaded (docs/runtime.md).
    """

    name: str
    preference: int

    def available(self) -> str:
        """Empty if the backend can build here, else the reason and how to mend it."""
        ...

    def takes(self, target: Target) -> str:
        """Empty if the backend compiles for targets such as this one, else the reason."""
        ...

    def check(self, engine: EngineEntry, files: EngineFiles) -> None:
        """Check what a load will take from the manifest, on any machine: that ``engine.data`` is as
        a build writes it, that the manifest lists every file that a load opens, and that the
        numbers of both fit those files. Does for a load and ``optc verify`` what either would
        refuse; imports no runtime.

        Raises:
            optc.errors.ArtifactError: Something is missing, of another type or out of range.
        """
        ...

    def can_load(self, engine: EngineEntry, machine: Machine) -> str:
        """Empty if an engine can be loaded on the machine, else the reason, one sentence.

        Cheap: what the target needs (`Machine.misfit`) and versions of installed packages; imports
        no runtime and opens no file. A load may still fail.
        """
        ...

    def features_used(self, engine: EngineEntry) -> tuple[str, ...]:
        """CPU features (Linux names) that the engine's own code uses: those of its target at most.
        Empty where it has none, as it runs on a device or picks its kernels when it is loaded."""
        ...


@runtime_checkable
class StepBackend(Backend, Protocol):
    """A backend of ragged steps, which generate text: it builds them, and loads what it built."""

    def supports(self, node: ir.Node, target: Target) -> Support:
        """The support of a node of a ragged step for a target that the backend `takes`."""
        ...

    def kv_pools(self, dtype: str, target: Target) -> Support:
        """The support of a type of `optc.runtime.executable.executable.KV_TYPES`, which the model
        asks for, by engines for a target that the backend `takes`: they keep keys and values as it
        asks (native), as what the reason says (decomposed), or not at all."""
        ...

    def weight_layout(self, target: Target) -> str:
        """Name of the layout of the weights of engines for ``target``: one engine of an artifact
        can read another's with the same layout (``BuildOptions.shared``) instead of a copy of its
        own, also one of another backend. Empty where they cannot be shared."""
        ...

    def build(
        self, model: ir.Model, target: Target, workdir: Path, options: BuildOptions
    ) -> EngineBuild:
        """Build the ragged-step model into files under ``workdir``; may change the model.

        Raises:
            optc.errors.UnsupportedError: A node cannot be lowered; names it and why.
            optc.errors.UnavailableError: The compiler or linker is missing.
        """
        ...

    def load(
        self, folder: Path, spec: StepInterface, data: dict[str, Any], threads: int
    ) -> Executable:
        """Load the engine whose files lie in ``folder``; must not import the compiler."""
        ...


@runtime_checkable
class ResidentBackend(Protocol):
    """A `StepBackend` whose engines can run with a part of their weights in memory."""

    def load_resident(
        self,
        folder: Path,
        spec: StepInterface,
        data: dict[str, Any],
        threads: int,
        resident: int,
    ) -> Executable:
        """As `StepBackend.load`, with at most ``resident`` bytes of weights that stay in memory;
        steps read the others from the disk. Results are the same.

        Raises:
            optc.errors.InputError: So much memory is not left.
            optc.errors.UnavailableError: The system cannot keep a part of the weights in memory.
        """
        ...


@dataclass(frozen=True)
class StoredTensor:
    """A tensor of an engine's weights as it lies in a file.

    Attributes:
        name: Unique in the engine.
        dtype: Of its elements, as the backend calls it.
        shape: In elements.
        path: The file, which the artifact's manifest lists.
        offset: Its first byte in the file.
        bytes: How many it takes.
        sha256: Of its bytes in hex, where ``path`` is a list that states it; empty where the bytes
            themselves lie there.
    """

    name: str
    dtype: str
    shape: tuple[int, ...]
    path: Path
    offset: int
    bytes: int
    sha256: str = ""


@runtime_checkable
class TensorsBackend(Protocol):
    """A backend that can say which tensors the weights of its engines are."""

    def stored_tensors(self, engine: EngineEntry, files: EngineFiles) -> list[StoredTensor]:
        """The tensors of an engine that `Backend.check` has passed, in the order of its files.

        Raises:
            optc.errors.UnavailableError: A package is missing that reads the engine's files.
        """
        ...


@runtime_checkable
class TensorsBuilder(Backend, Protocol):
    """A backend that builds engines of models of named tensors."""

    def build_tensors(
        self, model: ir.Model, interface: TensorsInterface, target: Target, workdir: Path
    ) -> EngineBuild:
        """Build a model in the form of batched tensors into files under ``workdir``; may change it.

        Raises:
            optc.errors.UnsupportedError: A node cannot be lowered; names it and why.
        """
        ...

    def load_tensors(
        self, folder: Path, interface: TensorsInterface, data: dict[str, Any], threads: int
    ) -> TensorsExecutable:
        """Load the engine whose files lie in ``folder``; must not import the compiler."""
        ...


@runtime_checkable
class CrossBackend(Protocol):
    """A backend that builds for other kinds of processors than this machine's."""

    def lacks(self, target: Target) -> str:
        """Empty if all is here that a build for ``target`` needs beside what `Backend.available`
        asks for, else what is missing and how to get it."""
        ...

    def fetch(self, target: Target) -> str:
        """Get what can be had from the package index; says what was done, one sentence.

        Raises:
            optc.errors.UnavailableError: It could not be had.
        """
        ...


@runtime_checkable
class HiddenBackend(Protocol):
    """A `StepBackend` that may build engines which give hidden states, and engines of a layer that
    drafts by them (`optc.runtime.executable.executable.HiddenExecutable`)."""

    def gives_hidden(self, target: Target) -> bool:
        """True if it builds them for ``target``."""
        ...


@runtime_checkable
class PreparedBackend(Protocol):
    """A backend that can do a part of a load before the files of an engine are checked."""

    def prepare(self) -> None:
        """Import what `StepBackend.load` needs; opens no file of an artifact.

        Raises:
            optc.errors.UnavailableError: A package is missing.
        """
        ...


@runtime_checkable
class WeightsBackend(Protocol):
    """A backend whose engines keep weights apart from code.

    Attributes:
        weight_files: Names of the files that hold nothing but weights.
    """

    weight_files: frozenset[str]


@runtime_checkable
class LoweredOnnxBackend(Protocol):
    """A backend that can run, on the CPU, what another one lowered (`EngineBuild.lowered_onnx`)."""

    def open_lowered(self, model: Path, spec: StepInterface, threads: int) -> Executable:
        """Load an ONNX model in slot form; ``spec`` is that of the engine built from it.

        Raises:
            optc.errors.UnsupportedError: Something in it cannot be run on the CPU.
            optc.errors.UnavailableError: A package is missing.
        """
        ...


def builds_steps(backend: Backend) -> StepBackend:
    """The backend as one of models that generate text.

    Raises:
        UnsupportedError: It builds no engines of them.
    """
    if not isinstance(backend, StepBackend):
        raise UnsupportedError(
            "builds no engines of models that generate text",
            where=f"backend {backend.name}",
            hint="optc targets lists backends",
        )
    return backend
