"""`load`: from an artifact folder to an `Engine`, without any compile-time package.

Most of the time of a load its weights are hashed, on a thread. What the engine needs is imported
meanwhile, so imports of this module are few.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from optc import registry
from optc.artifact.artifact import Artifact
from optc.artifact.choose import Choice
from optc.artifact.manifest import EngineEntry
from optc.backend import PreparedBackend, ResidentBackend
from optc.errors import ArtifactError, InputError, RequestError
from optc.runtime.settings import ServeSettings
from optc.runtime.speculative.kinds import MODELS, parse_kinds
from optc.system.hardware.target import usable_threads
from optc.system.logs.logger import logger
from optc.system.options.option import with_changes
from optc.system.processes.process_memory import give_back_freed

_LOG = logger(__name__)

if TYPE_CHECKING:
    from typing import Unpack

    from optc.runtime.engine import Engine
    from optc.runtime.executable.executable import Executable
    from optc.runtime.keywords import ServeChanges
    from optc.runtime.kv_events.events import StepLog
    from optc.runtime.loop.replacement import Replacement
    from optc.runtime.speculative.drafting import Drafting
    from optc.runtime.text.tokenizer import Tokenizer


def load(
    path: str | Path,
    settings: ServeSettings | None = None,
    *,
    log: StepLog | None = None,
    **changes: Unpack[ServeChanges],
) -> Engine:
    """Load an artifact for generation.

    Args:
        path: The artifact's folder.
        settings: How it serves; None are the defaults.
        log: Told of blocks of cached prefixes that come and go, unless the settings publish them.
        **changes: Fields of `ServeSettings` that differ from ``settings``.

    Raises:
        ArtifactError: Not an artifact, or damaged; names the file.
        UnavailableError: No engine can be loaded here; gives the reason against each.
        InputError: There is no such ``engine``, a setting is not usable, or a draft model is
            missing or does not fit.
        TypeError: There is no setting of a name in ``changes``.
    """
    settings = with_changes(settings or ServeSettings(), changes)
    _check_threads(settings.threads)
    kinds = _kinds(settings.speculate, settings.draft)
    count = settings.threads or usable_threads()
    artifact = Artifact.open(path, "size")
    # no file of an engine is opened before the end of this
    with artifact.contents_checked(settings.verify):
        from optc.runtime.engine import Engine
        from optc.runtime.engine_info import EngineInfo

        choice = artifact.choose(name=settings.engine)
        engines = _engines(artifact, choice.entry, kinds, settings, count)
        reader = artifact_tokenizer(artifact)
        for opened in engines.values():
            opened.prepare()
    tokenizer = artifact.manifest.tokenizer
    loaded = Engine(
        engines["target"],
        settings,
        info=EngineInfo.of(artifact.path, choice, artifact.digest),
        tokenizer=reader,
        eos_token_ids=tokenizer.eos_token_ids if tokenizer else (),
        drafting=_drafting(kinds, engines, settings, count),
        defaults=model_defaults(artifact) if settings.generation_defaults else None,
        log=log,
    )
    loaded.replacement = lambda other: _replacement(artifact, choice, other, kinds, settings)
    _LOG.info("loaded %r", loaded)
    for other in choice.rejected:
        _LOG.info("not %s: %s", other.name, other.reason)
    give_back_freed()  # reading a tokenizer leaves tens of megabytes behind
    return loaded


def _engines(
    artifact: Artifact,
    target: EngineEntry,
    kinds: tuple[str, ...],
    settings: ServeSettings,
    threads: int,
) -> dict[str, _Engine]:
    """The target and what drafts for it, by role."""
    from optc.runtime.speculative.drafters.draft_artifact import find_draft

    engines = {"target": _Engine(artifact, target, threads, settings.resident_memory_bytes)}
    for role in MODELS:
        if role in kinds:
            found = find_draft(artifact, target, role, settings.draft, settings.verify)
            engines[role] = _Engine(*found, threads)
    return engines


def _replacement(
    loaded: Artifact,
    choice: Choice,
    path: Path,
    kinds: tuple[str, ...],
    settings: ServeSettings,
) -> Replacement:
    """The engine that is loaded, in another artifact that differs in weights alone.

    Raises:
        ArtifactError: Not an artifact, or damaged.
        InputError: Something else differs, or weights are kept in a stated memory.
    """
    from optc.artifact.same_engine import check_same_engine, check_same_text
    from optc.runtime.engine_info import EngineInfo
    from optc.runtime.loop.replacement import Replacement

    if settings.resident_memory_bytes is not None:
        raise InputError(
            "an engine that keeps a part of its weights in memory cannot exchange them",
            where="resident_memory",
            hint="load the other artifact, or this one without resident_memory",
        )
    artifact = Artifact.open(path, "size")
    check_same_engine(loaded.manifest, artifact.manifest, choice.entry.name, str(path))
    check_same_text(loaded.manifest, artifact.manifest, str(path))
    with artifact.contents_checked(settings.verify):
        count = settings.threads or usable_threads()
        entry = next(e for e in artifact.manifest.engines if e.name == choice.entry.name)
        engines = _engines(artifact, entry, kinds, settings, count)
    info = EngineInfo.of(artifact.path, Choice(entry, choice.rejected), artifact.digest)
    drafting = _drafting(kinds, engines, settings, count)
    return Replacement(artifact.engine_folder(entry), engines["target"], drafting, info)


def model_defaults(artifact: Artifact) -> Mapping[str, Any]:
    """The model's own settings of generation.

    Raises:
        ArtifactError: One is no setting, or not usable.
    """
    from optc.runtime.params import SamplingParams

    defaults = artifact.manifest.generation
    try:
        SamplingParams(**defaults)
    except (RequestError, TypeError) as error:
        raise ArtifactError(
            f"generation: {error}",
            where=str(artifact.path),
            hint="compile the model again, or load it with generation_defaults=False",
        ) from error
    return defaults


def _drafting(
    kinds: tuple[str, ...], engines: Mapping[str, _Engine], settings: ServeSettings, threads: int
) -> Drafting:
    from optc.runtime.speculative.drafting import Drafting, MeasuredCosts
    from optc.runtime.speculative.planning.costs_cache import CostsCache

    return Drafting(
        kinds,
        next((engines[role] for role in MODELS if role in engines), None),
        settings.num_speculative_tokens,
        settings.max_drafted,
        MeasuredCosts(
            {role: opened.key for role, opened in engines.items()},
            threads,
            CostsCache() if settings.cost_cache else None,
        ),
    )


def _check_threads(threads: int | None) -> None:
    """The threads of a kernel wait for each other actively: more than CPUs all but stand still."""
    cpus = os.cpu_count() or 1
    if threads is not None and threads > cpus:
        raise InputError(
            f"{threads} threads on a machine with {cpus} CPUs",
            where="threads",
            hint=f"at most {cpus}; this process may use {usable_threads()}",
        )


def _kinds(speculate: str | None, draft: str | Path | None) -> tuple[str, ...]:
    """The ways to draft tokens (`optc.runtime.speculative.kinds`)."""
    wanted = speculate or ("off" if draft is None else "draft")
    kinds = parse_kinds(wanted)
    if draft is not None and "draft" not in kinds:
        raise InputError(
            f"a draft model is given, but not used by {wanted!r}",
            where="speculate",
            hint="draft or ngram+draft",
        )
    return kinds


@dataclass(frozen=True)
class _Engine:
    """An engine of an artifact, loaded when it is called."""

    artifact: Artifact
    entry: EngineEntry
    threads: int
    resident: int | None = None

    def __call__(self) -> Executable:
        backend = registry.step_backend(self.entry.backend)
        folder = self.artifact.engine_folder(self.entry)
        wanted = (folder, self.entry.spec, self.entry.data, self.threads)
        if self.resident is None:
            return backend.load(*wanted)
        if not isinstance(backend, ResidentBackend):
            raise InputError(
                f"engines of the backend {backend.name} keep all their weights in memory",
                where="resident_memory",
                hint="an engine of the backend tvm, for CPUs, maps its weights: "
                "optc compile --backend tvm",
            )
        return backend.load_resident(*wanted, self.resident)

    def prepare(self) -> None:
        """Import what loading it needs."""
        backend = registry.backend(self.entry.backend)
        if isinstance(backend, PreparedBackend):
            backend.prepare()

    @property
    def key(self) -> str:
        """Tells engines apart in the cache of measurements."""
        return f"{self.artifact.digest}/{self.entry.name}"


def artifact_tokenizer(artifact: Artifact) -> Tokenizer | None:
    """The tokenizer of an artifact; None if it has none.

    Raises:
        ArtifactError: Its file is not a tokenizer.
    """
    entry, path = artifact.manifest.tokenizer, artifact.tokenizer_file()
    if entry is None or path is None:
        return None
    from optc.runtime.text.tokenizer import Tokenizer, read_tokenizer

    return Tokenizer(
        read_tokenizer(path),
        bos_token_id=entry.bos_token_id if entry.add_bos else None,
        chat_template=artifact.chat_template(),
        special_tokens=entry.template_tokens,
    )
