"""Engines of an encoder-decoder, opened: of named tensors, or a decoder of steps."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from optc import registry
from optc.artifact.manifest import EngineEntry
from optc.backend import StepBackend
from optc.errors import InputError, UnsupportedError
from optc.runtime.encoded.attending import Attending, EncodedEngine
from optc.runtime.engine import Engine
from optc.runtime.executable.encoded import EncodedExecutable
from optc.runtime.executable.executable import StepInterface
from optc.runtime.executable.tensors import TensorsExecutable
from optc.runtime.settings import ServeSettings
from optc.runtime.speculative.drafting import Drafting, MeasuredCosts
from optc.runtime.speculative.kinds import parse_kinds
from optc.runtime.speculative.planning.costs_cache import CostsCache
from optc.runtime.tensors.engine import open_folder
from optc.runtime.text.tokenizer import Tokenizer

#: Ways to draft that need no engine of their own.
_KINDS = ("ngram", "lookahead")


def open_part(
    folder: Path,
    entry: EngineEntry,
    threads: int,
    ends: Sequence[int],
    *,
    settings: ServeSettings | None = None,
    tokenizer: Tokenizer | None = None,
    digest: str = "",
) -> TensorsExecutable | Engine:
    """The loaded engine whose files lie in ``folder``: one of steps serves requests.

    Args:
        folder: Of the engine.
        entry: Its entry of the manifest.
        threads: It may use.
        ends: Tokens that end a text.
        settings: Of the engine of steps; None are the defaults.
        tokenizer: For structured output.
        digest: Of the artifact, by which measured costs are kept.

    Raises:
        InputError: ``settings.speculate`` names what needs another engine, or anything where the
            decoder does not run in steps.
        UnsupportedError: Its steps attend to no encoder, or its backend runs no such engines.
        UnavailableError, ArtifactError: As the backend's load.
    """
    chosen = settings or ServeSettings()
    if not isinstance(spec := entry.interface, StepInterface):
        check_no_drafts(chosen, "a decoder that writes whole batches")
        return open_folder(folder, entry, threads)
    return Engine(
        lambda: Attending(load_encoded(folder, entry, spec, threads)),
        chosen,
        tokenizer=tokenizer,
        eos_token_ids=ends,
        drafting=_drafting(chosen, threads, digest and f"{digest}/{entry.name}"),
    )


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
    """The engine of steps in ``folder``; raises as `open_part`."""
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


def _drafting(settings: ServeSettings, threads: int, key: str) -> Drafting:
    kinds = parse_kinds(settings.speculate or "off")
    if other := next((kind for kind in kinds if kind not in _KINDS), ""):
        raise InputError(
            f"nothing drafts by {other!r} for a decoder that attends to an encoder",
            where="speculate",
            hint=f"off, or one or more of {', '.join(_KINDS)}, joined by +",
        )
    cache = CostsCache() if settings.cost_cache else None
    costs = MeasuredCosts({"target": key} if key else {}, threads, cache)
    return Drafting(kinds, None, settings.num_speculative_tokens, settings.max_drafted, costs)
