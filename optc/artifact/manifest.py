"""The manifest: everything that identifies an artifact, as frozen dataclasses and as JSON.

Nothing here depends on time, path or machine, so that two compiles of the same input write the
same bytes. Figures, timings and machine facts go to ``report.json``, outside the digest.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from optc.artifact.jsonio import canonical_json
from optc.executable.executable import EngineSpec
from optc.target import Target

#: Raised when a reader of the previous number could no longer understand what is written.
FORMAT_VERSION = 2
MANIFEST_NAME = "manifest.json"
REPORT_NAME = "report.json"
TOKENIZER_FILE = "tokenizer/tokenizer.json"
#: Of engines.
ROLES = ("target", "draft", "self", "eagle")


@dataclass(frozen=True)
class Pieces:
    """Digests of a large file's pieces, which threads check side by side.

    Attributes:
        bytes: Length of each piece but the last, which is what is left.
        sha256: sha256 in hex of each, in order.
    """

    bytes: int
    sha256: tuple[str, ...]


@dataclass(frozen=True)
class FileEntry:
    """One file of the artifact.

    Attributes:
        path: POSIX, relative to the artifact.
        bytes: Its length.
        sha256: sha256 in hex of the whole file.
        pieces: The same bytes in pieces; None where they are few, or the artifact is older.
    """

    path: str
    bytes: int
    sha256: str
    pieces: Pieces | None = None


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
        role: ``target``; ``draft``, ``self`` or ``eagle`` for one that proposes tokens: a smaller
            model, the first layers on the target's weights, or a layer on its hidden states.
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
        special_tokens: Texts of other special tokens that the template names, by these names.
    """

    files: tuple[str, ...]
    bos_token_id: int | None
    eos_token_ids: tuple[int, ...]
    add_bos: bool
    bos_token: str = ""
    eos_token: str = ""
    chat_template: str = ""
    special_tokens: Mapping[str, str] = field(default_factory=dict)

    @property
    def template_tokens(self) -> dict[str, str]:
        """Every special token that a chat template may name."""
        own = {"bos_token": self.bos_token, "eos_token": self.eos_token}
        return {**self.special_tokens, **{name: text for name, text in own.items() if text}}


@dataclass(frozen=True)
class PassEntry:
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
    count: int
    details: dict[str, int] = field(default_factory=dict)
    removes: str = ""
    leaves_class: str = ""
    moves_weights: bool = False


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
        generation: Values of `SamplingParams` that hold where a request states none: what the
            model's own settings say.
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
    generation: Mapping[str, Any] = field(default_factory=dict)

    @property
    def digest(self) -> str:
        """sha256 in hex of the canonical JSON without the digest itself."""
        return digest_of(self._body())

    def to_json(self) -> dict[str, Any]:
        """The JSON object as written, with ``digest``."""
        return {**self._body(), "digest": self.digest}

    def _body(self) -> dict[str, Any]:
        body = {"format": FORMAT_VERSION, **asdict(self)}
        if not body["generation"]:  # as before the model's own settings were taken
            del body["generation"]
        if body["tokenizer"] is not None and not body["tokenizer"]["special_tokens"]:
            del body["tokenizer"]["special_tokens"]  # as before templates could name them
        for engine in body["engines"]:
            if engine["source"] is None:  # as artifacts were written before there were drafts
                del engine["source"]
        for file in body["files"]:
            if file["pieces"] is None:  # as before large files had pieces
                del file["pieces"]
        for gate in body["gates"]:  # and before they had several target engines
            for key, default in (("engine", "target"), ("lowered", False)):
                if gate[key] == default:
                    del gate[key]
        return body


def digest_of(body: Mapping[str, Any]) -> str:
    """sha256 in hex of a manifest's canonical JSON; a ``digest`` in it is left out."""
    contents = {key: value for key, value in body.items() if key != "digest"}
    return hashlib.sha256(canonical_json(contents)).hexdigest()
