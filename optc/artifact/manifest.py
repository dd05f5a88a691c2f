"""The manifest: everything that identifies an artifact, as structs and as JSON (docs/artifact.md).

Nothing here depends on time, path or machine, so that two compiles of the same input write the
same bytes. Figures, timings and machine facts go to ``report.json``, outside the digest.
"""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import PurePosixPath
from typing import Any

import msgspec
from msgspec import Struct

from optc.artifact.jsonio import canonical_json
from optc.artifact.tasks.task import Task
from optc.errors import UnsupportedError
from optc.runtime.executable.executable import StepInterface
from optc.runtime.executable.interface import Interface, type_of
from optc.system.foreign.typed_json import Count, Integer, Sha256, Size
from optc.system.hardware.target import Target

#: Raised when a reader of the previous number could no longer understand what is written.
FORMAT_VERSION = 3
MANIFEST_NAME = "manifest.json"
REPORT_NAME = "report.json"
TOKENIZER_FILE = "tokenizer/tokenizer.json"
#: Pieces of a file start at multiples of this many bytes, where every system can map it from.
PIECE_MULTIPLE = 1 << 20
_ARCH = re.compile(r"sm_[0-9]{2,3}(\+sm_[0-9]{2,3})*")


class Pieces(Struct, frozen=True, forbid_unknown_fields=True):
    """Digests of a large file's pieces, which threads check side by side.

    Attributes:
        bytes: Length of each piece but the last, which is what is left.
        sha256: sha256 in hex of each, in order.
    """

    bytes: Size
    sha256: tuple[Sha256, ...]

    def __post_init__(self) -> None:
        if self.bytes < PIECE_MULTIPLE or self.bytes % PIECE_MULTIPLE:
            raise ValueError(f"pieces of {self.bytes} bytes, which are no multiple of 1 MiB")


class FileEntry(Struct, frozen=True, forbid_unknown_fields=True):
    """One file of the artifact.

    Attributes:
        path: POSIX, relative to the artifact.
        bytes: Its length.
        sha256: sha256 in hex of the whole file.
        pieces: The same bytes in pieces; None where they are few.
    """

    path: str
    bytes: Size
    sha256: Sha256
    pieces: Pieces | None = None

    def __post_init__(self) -> None:
        check_path(self.path)
        if self.pieces is None:
            return
        count, needed = len(self.pieces.sha256), -(-self.bytes // self.pieces.bytes)
        if count != needed:
            raise ValueError(
                f"{count} pieces, where {self.bytes} bytes in pieces of {self.pieces.bytes} are "
                f"{needed}"
            )


class Source(Struct, frozen=True, forbid_unknown_fields=True):
    """The source: its name, the sha256 of config and weights, family and config."""

    name: str
    digest: str
    family: str
    config: dict[str, Any]


class EngineEntry(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """One engine.

    Attributes:
        name: Unique in the artifact.
        role: One of the task's. In text generation ``target``; ``draft``, ``self`` or ``eagle`` for
            one that proposes tokens: a smaller model, the first layers on the target's weights, or
            a layer on its hidden states.
        backend: Registry name of the backend that loads it.
        target: What it was compiled for; its features are required at load.
        requires: Versions of runtime packages that load checks.
        interface: How it is called, with its limits and shapes.
        data: The backend's own JSON, given back to it at load.
        folder: Folder of its files, relative to the artifact.
        files: Its files, relative to ``folder``.
        source: What it was compiled from; None is the manifest's own source.
    """

    name: str
    role: str
    backend: str
    target: Target
    requires: dict[str, str]
    interface: Interface
    data: dict[str, Any]
    folder: str
    files: tuple[str, ...]
    source: Source | None = None

    def __post_init__(self) -> None:
        for path in (self.folder, *self.files):
            check_path(path)
        if self.target.kind not in ("cpu", "cuda"):
            raise ValueError(f"the target's kind is {self.target.kind[:80]!r}, not cpu or cuda")
        if self.target.arch and not _ARCH.fullmatch(self.target.arch):
            arch = self.target.arch[:80]
            raise ValueError(f"the target's arch is {arch!r}, not sm_90 or sm_80+sm_89")

    @property
    def step(self) -> StepInterface | None:
        """The interface of an engine that runs steps; None where it takes tensors."""
        return self.interface if isinstance(self.interface, StepInterface) else None

    @property
    def spec(self) -> StepInterface:
        """The interface of an engine that runs steps.

        Raises:
            UnsupportedError: It takes tensors.
        """
        if isinstance(self.interface, StepInterface):
            return self.interface
        raise UnsupportedError(
            f"has the interface {type_of(self.interface)!r}, where steps are needed",
            where=f"engine {self.name!r}",
            hint="only engines of decoders run steps",
        )


class TokenizerEntry(Struct, frozen=True, forbid_unknown_fields=True):
    """The tokenizer and its conventions.

    Attributes:
        files: Paths relative to the artifact; ``tokenizer/tokenizer.json`` is always among them.
        bos_token_id: Beginning of a text; None where the model has none.
        eos_token_ids: Tokens that end a generation.
        add_bos: A prompt's ids start with ``bos_token_id``: the reader prepends it where the
            post-processor of ``tokenizer.json`` has not done so itself.
        bos_token: Text of the BOS token, for chat templates; empty where there is none.
        eos_token: Text of the EOS token, for chat templates; empty where there is none.
        chat_template: Jinja template's path relative to the artifact; empty where there is none.
        special_tokens: Texts of other special tokens that the template names, by these names.
    """

    files: tuple[str, ...]
    bos_token_id: Count | None
    eos_token_ids: tuple[Count, ...]
    add_bos: bool
    bos_token: str = ""
    eos_token: str = ""
    chat_template: str = ""
    special_tokens: dict[str, str] = {}

    def __post_init__(self) -> None:
        for path in (*self.files, *filter(None, [self.chat_template])):
            check_path(path)
        if TOKENIZER_FILE not in self.files:
            raise ValueError(f"its files lack {TOKENIZER_FILE}")

    @property
    def template_tokens(self) -> dict[str, str]:
        """Every special token that a chat template may name."""
        own = {"bos_token": self.bos_token, "eos_token": self.eos_token}
        return {**self.special_tokens, **{name: text for name, text in own.items() if text}}


class PassEntry(Struct, frozen=True, forbid_unknown_fields=True):
    """One pass of the pipeline that ran: its spec text and how many places it rewrote.

    Attributes:
        name: In recipes.
        spec: The pass as text, with its options.
        count: How many places it rewrote.
        details: These by kind.
        removes: Structures that it takes out and that a config counts: ``layers``, ``heads`` or
            ``neurons``; empty are none.
        leaves_class: Why weights behind it are no checkpoint of the model's class; empty if they
            are one.
        moves_weights: Whether weights got other names, or their rows another order.
    """

    name: str
    spec: str
    count: Count
    details: dict[str, Integer] = {}
    removes: str = ""
    leaves_class: str = ""
    moves_weights: bool = False


class GateEntry(Struct, frozen=True, forbid_unknown_fields=True):
    """Verdict of one gate.

    Attributes:
        name: Of the gate.
        bound: None is reported only.
        passed: Whether it held; None means it was not judged.
        engine: The engine's name.
        lowered: Measured on the model that the engine was lowered to, instead of the engine.
    """

    name: str
    bound: float | None
    passed: bool | None
    engine: str = "target"
    lowered: bool = False


class Manifest(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The whole manifest.

    Attributes:
        name: Name of the model.
        task: What the model is for; its measures are the gates.
        source: What it was compiled from.
        recipe: The full recipe as JSON, overrides applied.
        pipeline: Spec string of all passes, in order.
        passes: What every pass did.
        engines: At least one.
        tokenizer: None where the source has none.
        files: Every file but the manifest and the report, sorted by path.
        gated: False where the gates were switched off.
        gates: Verdicts; the values are in the report.
        packages: Versions of the packages that compiled it.
        generation: Values of `SamplingParams` that hold where a request states none: what the
            model's own settings say.
    """

    name: str
    task: Task
    source: Source
    recipe: dict[str, Any]
    pipeline: str
    passes: tuple[PassEntry, ...]
    engines: tuple[EngineEntry, ...]
    tokenizer: TokenizerEntry | None
    files: tuple[FileEntry, ...]
    gated: bool
    gates: tuple[GateEntry, ...]
    packages: dict[str, str]
    generation: dict[str, Any] = {}

    def __post_init__(self) -> None:
        _check_unique("file", (entry.path for entry in self.files))
        _check_unique("engine", (engine.name for engine in self.engines))
        for engine in self.engines:
            expected, found = self.task.roles.get(engine.role), type_of(engine.interface)
            if expected is None:
                known = ", ".join(sorted(self.task.roles))
                raise ValueError(f"the role {engine.role[:80]!r} is none of {known}")
            if expected != found:
                raise ValueError(
                    f"the engine {engine.name[:80]!r} has the interface {found!r}, where the task "
                    f"{self.task.name[:80]!r} has {expected!r}"
                )
        measures = self.task.by_name
        for gate in self.gates:
            if gate.name not in measures:
                raise ValueError(f"the gate {gate.name[:80]!r} is no measure of its task")

    @property
    def compiled_by(self) -> str:
        """The optc that wrote it, for messages."""
        return compiled_by(self.packages)

    @property
    def digest(self) -> str:
        """sha256 in hex of the canonical JSON without the digest itself."""
        return digest_of(self._body())

    def to_json(self) -> dict[str, Any]:
        """The JSON object as written, with ``digest``: every field, defaults too."""
        body = self._body()
        return {**body, "digest": digest_of(body)}

    def _body(self) -> dict[str, Any]:
        return {"format": FORMAT_VERSION, **msgspec.to_builtins(self)}


def digest_of(body: Mapping[str, Any]) -> str:
    """sha256 in hex of a manifest's canonical JSON; a ``digest`` in it is left out."""
    contents = {key: value for key, value in body.items() if key != "digest"}
    return hashlib.sha256(canonical_json(contents)).hexdigest()


def short_digest(digest: str) -> str:
    """The part of a digest that messages and tables show: enough to tell artifacts apart."""
    return digest[:12]


def compiled_by(packages: object) -> str:
    """The optc of a manifest's ``packages``, which may be anything, for messages."""
    version = packages.get("optc") if isinstance(packages, Mapping) else None
    return f"optc {version[:80]}" if isinstance(version, str) else "the optc"


def check_path(path: str) -> None:
    """Check that a path names something in the artifact, in the one form in which it can be
    written.

    Raises:
        ValueError: It does not.
    """
    parts = PurePosixPath(path)
    if parts.is_absolute() or ".." in parts.parts or not parts.parts:
        raise ValueError(f"the path {path[:80]!r} leaves the artifact")
    if parts.as_posix() != path or not path.isprintable() or "\\" in path:
        raise ValueError(f"the path {path[:80]!r} is not one that optc compile writes")


def _check_unique(what: str, names: Iterable[str]) -> None:
    for name, count in Counter(names).items():
        if count > 1:
            raise ValueError(f"the {what} {name[:80]!r} is listed more than once")
