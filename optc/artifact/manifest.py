"""The manifest: everything that identifies an artifact, as frozen dataclasses and as JSON.

Nothing here depends on time, path or machine, so that two compiles of the same input write the
same bytes. Figures, timings and machine facts go to ``report.json``, outside the digest.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import PurePosixPath
from typing import Any

from optc.artifact.engine_spec import parse_spec
from optc.artifact.jsonio import Fields, canonical_json
from optc.errors import ArtifactError
from optc.runtime.executable import EngineSpec
from optc.target import Target

#: Raised when a reader of the previous number could no longer understand what is written.
FORMAT_VERSION = 2
MANIFEST_NAME = "manifest.json"
REPORT_NAME = "report.json"


@dataclass(frozen=True)
class FileEntry:
    """One file of the artifact: path (POSIX, relative to it), length in bytes and sha256 in hex."""

    path: str
    bytes: int
    sha256: str


@dataclass(frozen=True)
class Source:
    """What was compiled: its name, the sha256 of config and weights, family and config."""

    name: str
    digest: str
    family: str
    config: dict[str, Any]


@dataclass(frozen=True)
class EngineEntry:
    """One engine.

    Attributes:
        name: Unique in the artifact.
        role: ``target``; ``draft`` or ``self`` for one that proposes tokens, a smaller model or the
            first layers on the target's weights.
        backend: Registry name of the backend that loads it.
        target: What it was compiled for; its features are required at load.
        requires: Versions of runtime packages that load checks.
        spec: Limits and KV shape.
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
    spec: EngineSpec
    data: dict[str, Any]
    folder: str
    files: tuple[str, ...]
    source: Source | None = None


@dataclass(frozen=True)
class TokenizerEntry:
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
    """

    files: tuple[str, ...]
    bos_token_id: int | None
    eos_token_ids: tuple[int, ...]
    add_bos: bool
    bos_token: str = ""
    eos_token: str = ""
    chat_template: str = ""


@dataclass(frozen=True)
class PassEntry:
    """One pass of the pipeline that ran: its spec text and how many places it rewrote."""

    name: str
    spec: str
    count: int
    details: dict[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class GateEntry:
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


@dataclass(frozen=True)
class Manifest:
    """The whole manifest.

    Attributes:
        kind: ``language-model``.
        name: Name of the model.
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
    """

    kind: str
    name: str
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

    @property
    def digest(self) -> str:
        """sha256 in hex of the canonical JSON without the digest itself."""
        return digest_of(self._body())

    def to_json(self) -> dict[str, Any]:
        """The JSON object as written, with ``digest``."""
        return {**self._body(), "digest": self.digest}

    def _body(self) -> dict[str, Any]:
        body = {"format": FORMAT_VERSION, **asdict(self)}
        for engine in body["engines"]:
            if engine["source"] is None:  # as artifacts were written before there were drafts
                del engine["source"]
        for gate in body["gates"]:  # and before they had several target engines
            for key, default in (("engine", "target"), ("lowered", False)):
                if gate[key] == default:
                    del gate[key]
        return body


def digest_of(body: Mapping[str, Any]) -> str:
    """sha256 in hex of a manifest's canonical JSON; a ``digest`` in it is left out."""
    contents = {key: value for key, value in body.items() if key != "digest"}
    return hashlib.sha256(canonical_json(contents)).hexdigest()


def parse_manifest(value: object, where: str) -> Manifest:
    """The manifest in a JSON object.

    Args:
        value: The parsed JSON.
        where: Path of the file, for messages.

    Raises:
        ArtifactError: Another format version, a key missing or of another type, an unsafe path,
            or a digest that does not match.
    """
    fields = Fields(value, where)
    _check_format(fields, where)
    _check_digest(fields, where)
    tokenizer = fields.optional("tokenizer", dict)
    manifest = Manifest(
        kind=fields.get("kind", str),
        name=fields.get("name", str),
        source=_source(fields.child("source")),
        recipe=fields.get("recipe", dict),
        pipeline=fields.get("pipeline", str),
        passes=tuple(_pass(f) for f in fields.children("passes")),
        engines=tuple(_engine(f) for f in fields.children("engines")),
        tokenizer=None if tokenizer is None else _tokenizer(fields.child("tokenizer")),
        files=tuple(_file(f) for f in fields.children("files")),
        gated=fields.get("gated", bool),
        gates=tuple(_gate(f) for f in fields.children("gates")),
        packages=fields.get("packages", dict),
    )
    folders = [engine.folder for engine in manifest.engines]
    texts = [] if manifest.tokenizer is None else manifest.tokenizer.files
    for path in (*(entry.path for entry in manifest.files), *folders, *texts):
        _check_path(path, where)
    return manifest


def _check_format(fields: Fields, where: str) -> None:
    version = fields.get("format", int)
    if version != FORMAT_VERSION:
        raise ArtifactError(
            f"format version {version}, but this optc reads version {FORMAT_VERSION}",
            where=where,
            hint="compile the model again with this version, or install the optc that wrote it",
        )


def _check_digest(fields: Fields, where: str) -> None:
    if fields.get("digest", str) != digest_of(fields.values):
        raise ArtifactError(
            "the digest does not match the contents: the manifest was changed or damaged",
            where=where,
            hint="copy the artifact again or compile the model again",
        )


def _check_path(path: str, where: str) -> None:
    parts = PurePosixPath(path)
    if parts.is_absolute() or ".." in parts.parts or not parts.parts:
        raise ArtifactError(f"the path {path!r} leaves the artifact", where=where)


def _source(f: Fields) -> Source:
    return Source(
        f.get("name", str), f.get("digest", str), f.get("family", str), f.get("config", dict)
    )


def _pass(f: Fields) -> PassEntry:
    return PassEntry(
        f.get("name", str), f.get("spec", str), f.get("count", int), f.get("details", dict)
    )


def _gate(f: Fields) -> GateEntry:
    return GateEntry(
        f.get("name", str),
        f.number("bound"),
        f.optional("passed", bool),
        f.optional("engine", str) or "target",
        bool(f.optional("lowered", bool)),
    )


def _file(f: Fields) -> FileEntry:
    return FileEntry(f.get("path", str), f.get("bytes", int), f.get("sha256", str))


def _tokenizer(f: Fields) -> TokenizerEntry:
    return TokenizerEntry(
        files=f.each("files", str),
        bos_token_id=f.optional("bos_token_id", int),
        eos_token_ids=f.each("eos_token_ids", int),
        add_bos=f.get("add_bos", bool),
        bos_token=f.get("bos_token", str),
        eos_token=f.get("eos_token", str),
        chat_template=f.get("chat_template", str),
    )


def _engine(f: Fields) -> EngineEntry:
    target = f.child("target")
    return EngineEntry(
        name=f.get("name", str),
        role=f.get("role", str),
        backend=f.get("backend", str),
        target=Target(
            target.get("name", str),
            target.get("kind", str),
            target.each("features", str),
            target.get("arch", str),
        ),
        requires=f.get("requires", dict),
        spec=parse_spec(f.child("spec")),
        data=f.get("data", dict),
        folder=f.get("folder", str),
        files=f.each("files", str),
        source=_source(f.child("source")) if f.optional("source", dict) else None,
    )
