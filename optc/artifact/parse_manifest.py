"""The manifest from its JSON, checked key by key."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from pathlib import PurePosixPath

from optc.artifact.engine_spec import parse_spec
from optc.artifact.jsonio import MAX_INT, Fields
from optc.artifact.manifest import (
    FORMAT_VERSION,
    ROLES,
    TOKENIZER_FILE,
    EngineEntry,
    FileEntry,
    GateEntry,
    Manifest,
    PassEntry,
    Pieces,
    Source,
    TokenizerEntry,
    digest_of,
)
from optc.errors import ArtifactError
from optc.target import Target

#: Pieces of a file start at multiples of this many bytes, where every system can map it from.
PIECE_MULTIPLE = 1 << 20
_HEX = re.compile("[0-9a-f]{64}")
_ARCH = re.compile(r"sm_[0-9]{2,3}(\+sm_[0-9]{2,3})*")


def parse_manifest(value: object, where: str) -> Manifest:
    """The manifest in a JSON object.

    Args:
        value: The parsed JSON.
        where: Path of the file, for messages.

    Raises:
        ArtifactError: Another format version, a key missing, of another type or out of range, an
            unsafe path, pieces that do not make up their file, or a digest that does not match.
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
        packages=fields.texts("packages"),
        generation=dict(fields.optional("generation", dict) or {}),
    )
    _check_unique("file", [entry.path for entry in manifest.files], where)
    _check_unique("engine", [engine.name for engine in manifest.engines], where)
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


def _path(f: Fields, path: str) -> str:
    """A path that names something in the artifact, in the one form in which it can be written."""
    parts = PurePosixPath(path)
    if parts.is_absolute() or ".." in parts.parts or not parts.parts:
        raise f.error(f"the path {path[:80]!r} leaves the artifact")
    if parts.as_posix() != path or not path.isprintable() or "\\" in path:
        raise f.error(f"the path {path[:80]!r} is not one that optc compile writes")
    return path


def _check_unique(what: str, names: Sequence[str], where: str) -> None:
    twice = [name for name, count in Counter(names).items() if count > 1]
    if twice:
        raise ArtifactError(f"the {what} {twice[0]!r} is listed more than once", where=where)


def _source(f: Fields) -> Source:
    return Source(
        f.get("name", str), f.get("digest", str), f.get("family", str), f.get("config", dict)
    )


def _pass(f: Fields) -> PassEntry:
    return PassEntry(
        f.get("name", str),
        f.get("spec", str),
        f.get("count", int),
        _details(f.child("details")),
        f.get("removes", str),
        f.get("leaves_class", str),
        f.get("moves_weights", bool),
    )


def _details(f: Fields) -> dict[str, int]:
    return {name: f.get(name, int) for name in f.values}


def _gate(f: Fields) -> GateEntry:
    return GateEntry(
        f.get("name", str),
        f.number("bound"),
        f.optional("passed", bool),
        f.optional("engine", str) or "target",
        bool(f.optional("lowered", bool)),
    )


def _file(f: Fields) -> FileEntry:
    size = f.count("bytes", 0, MAX_INT)
    pieces = None if f.optional("pieces", dict) is None else _pieces(f.child("pieces"), size)
    path, digest = _path(f, f.get("path", str)), f.get("sha256", str)
    if not _HEX.fullmatch(digest):
        raise f.error(f"the digest is no sha256 in hex: {digest[:80]!r}")
    return FileEntry(path, size, digest, pieces)


def _pieces(f: Fields, size: int) -> Pieces:
    """The pieces of a file of ``size`` bytes."""
    pieces = Pieces(f.get("bytes", int), f.each("sha256", str))
    if pieces.bytes < PIECE_MULTIPLE or pieces.bytes % PIECE_MULTIPLE:
        raise f.error(f"pieces of {pieces.bytes} bytes, which are no multiple of 1 MiB")
    needed = -(-size // pieces.bytes)
    if len(pieces.sha256) != needed:
        raise f.error(
            f"{len(pieces.sha256)} pieces, where {size} bytes in pieces of {pieces.bytes} "
            f"are {needed}"
        )
    for index, digest in enumerate(pieces.sha256):
        if not _HEX.fullmatch(digest):
            raise f.error(f"the digest of piece {index} is no sha256 in hex: {digest[:80]!r}")
    return pieces


def _tokenizer(f: Fields) -> TokenizerEntry:
    files = tuple(_path(f, path) for path in f.each("files", str))
    if TOKENIZER_FILE not in files:
        raise f.error(f"the key 'files' lacks {TOKENIZER_FILE}")
    template = f.get("chat_template", str)
    return TokenizerEntry(
        files=files,
        bos_token_id=None if f.optional("bos_token_id", int) is None else f.count("bos_token_id"),
        eos_token_ids=f.counts("eos_token_ids"),
        add_bos=f.get("add_bos", bool),
        bos_token=f.get("bos_token", str),
        eos_token=f.get("eos_token", str),
        chat_template=_path(f, template) if template else "",
        special_tokens=f.texts("special_tokens") if "special_tokens" in f.values else {},
    )


def _target(f: Fields) -> Target:
    arch = f.get("arch", str)
    if arch and not _ARCH.fullmatch(arch):
        raise f.error(f"the key 'arch' is {arch[:80]!r}, not sm_90 or sm_80+sm_89")
    kind = f.choice("kind", ("cpu", "cuda"))
    return Target(f.get("name", str), kind, f.each("features", str), arch)


def _engine(f: Fields) -> EngineEntry:
    return EngineEntry(
        name=f.get("name", str),
        role=f.choice("role", ROLES),
        backend=f.get("backend", str),
        target=_target(f.child("target")),
        requires=f.texts("requires"),
        spec=parse_spec(f.child("spec")),
        data=f.get("data", dict),
        folder=_path(f, f.get("folder", str)),
        files=tuple(_path(f, path) for path in f.each("files", str)),
        source=_source(f.child("source")) if f.optional("source", dict) else None,
    )
