"""Engines of a model that turns texts into texts, opened."""

from __future__ import annotations

from pathlib import Path

from optc.artifact.manifest import EngineEntry
from optc.errors import InputError
from optc.runtime.encoded.attending import Attending
from optc.runtime.encoded.open import check_no_drafts, load_encoded
from optc.runtime.engine import Engine
from optc.runtime.executable.executable import StepInterface
from optc.runtime.executable.tensors import TensorsExecutable
from optc.runtime.settings import ServeSettings
from optc.runtime.speculative.drafting import Drafting, MeasuredCosts
from optc.runtime.speculative.kinds import parse_kinds
from optc.runtime.speculative.planning.costs_cache import CostsCache
from optc.runtime.tensors.engine import open_folder
from optc.runtime.text.tokenizer import Tokenizer
from optc.runtime.text_to_text.conventions import TextConventions
from optc.runtime.text_to_text.step_writer import StepWriter
from optc.runtime.text_to_text.writer import TensorWriter, Writer

#: Ways to draft that need no engine of their own.
_KINDS = ("ngram", "lookahead")


def open_part(
    folder: Path,
    entry: EngineEntry,
    threads: int,
    conventions: TextConventions,
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
        conventions: Of the model's tokens.
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
        eos_token_ids=conventions.ends,
        drafting=_drafting(chosen, threads, digest and f"{digest}/{entry.name}"),
    )


def as_writer(engine: TensorsExecutable | Engine) -> Writer:
    """The writer of a decoder's engine."""
    return StepWriter(engine) if isinstance(engine, Engine) else TensorWriter(engine)


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
