"""The manifest from its JSON, checked key by key."""

from __future__ import annotations

import re
from pathlib import PurePosixPath

from optc.artifact.engine_spec import parse_spec
from optc.artifact.jsonio import Fields
from optc.artifact.manifest import (
    FORMAT_VERSION,
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


def parse_manifest(value: object, where: str) -> Manifest:
    """The manifest in a JSON object.

    Args:
        value: The parsed JSON.
        where: Path of the file, for messages.

    Raises:
        ArtifactError: Another format version, a key missing or of another type, an unsafe path,
            pieces that do not make up their file, or a digest that does not match.
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
    size = f.get("bytes", int)
    pieces = None if f.optional("pieces", dict) is None else _pieces(f.child("pieces"), size)
    return FileEntry(f.get("path", str), size, f.get("sha256", str), pieces)


def _pieces(f: Fields, size: int) -> Pieces:
    """The pieces of a file of ``size`` bytes."""
    pieces = Pieces(f.get("bytes", int), f.each("sha256", str))
    if pieces.bytes <= 0 or pieces.bytes % PIECE_MULTIPLE:
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
