"""`load`: from an artifact folder to an `Engine`, without any compile-time package.

Most of the time of a load its weights are hashed, on a thread. What the engine needs is imported
meanwhile, so imports of this module are few.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from optc import registry
from optc.artifact import Artifact, EngineEntry
from optc.backend import PreparedBackend
from optc.errors import InputError
from optc.runtime.heap import give_back_freed
from optc.runtime.speculative.kinds import MAX_DRAFTED, MODELS, parse_kinds
from optc.target import usable_threads
from optc.units import parse_bytes

if TYPE_CHECKING:
    from optc.executable.executable import Executable
    from optc.runtime.engine import Engine
    from optc.runtime.kv.eviction import Eviction
    from optc.runtime.scheduling.batching import BatchingMode
    from optc.runtime.text.tokenizer import Tokenizer


def load(
    path: str | Path,
    *,
    engine: str | None = None,
    kv_memory: str | int | None = None,
    threads: int | None = None,
    token_budget: int | None = None,
    max_sequences: int | None = None,
    prefill_chunk: int | None = None,
    max_drafted: int = MAX_DRAFTED,
    block_size: int | None = None,
    prefix_cache: bool = True,
    prefix_eviction: Eviction = "lru",
    prefix_spill: str | Path | None = None,
    speculate: str | None = None,
    draft: str | Path | None = None,
    num_speculative_tokens: int | None = None,
    cost_cache: bool = True,
    batching: BatchingMode = "continuous",
    batch_window_ms: float = 5.0,
    verify: Literal["full", "size"] = "full",
) -> Engine:
    """Load an artifact for generation.

    Args:
        path: The artifact's folder.
        engine: Name of one of its engines; None is the one that suits this machine best
            (docs/runtime.md). ``Engine.info`` says which that is and why not another.
        kv_memory: Memory for keys and values, ``"2GiB"`` or bytes; None is enough for all
            sequences at full length, at most 2 GiB and a quarter of the available memory.
        threads: Threads of the engine, at most the CPUs of the machine; None is what this process
            may use.
        token_budget: Most rows of one step; None is the engine's limit.
        max_sequences: Most requests that are served at once, others wait; None is the engine's
            limit.
        prefill_chunk: Most rows of a step that prompts get while others decode, which bounds how
            long new prompts hold up running answers; None leaves that to ``token_budget``.
        max_drafted: Most drafts of a request in a step, if ``speculate`` is on.
        block_size: Tokens of a KV block; None chooses.
        prefix_cache: Keep the keys and values of prefixes for later requests that begin alike;
            never changes a result. Without effect on engines that are not batch-invariant.
        prefix_eviction: Which of them goes first when others need the room: the least recently used
            (``lru``), or the least frequently used (``lfu``), with aging.
        prefix_spill: Where evicted ones go: ``"1GiB"`` of memory, or a folder, ``"/var/tmp"`` or
            with the file's size ``"/var/tmp:10GiB"`` (default: a quarter of what is free).
            Restored on a hit where that is faster than to compute them; None drops them.
        speculate: Drafts tokens and verifies several in one step, while that pays: ``ngram`` what
            the request's own text repeats, ``lookahead`` also what the model said behind rejected
            drafts, ``draft`` what a smaller model says, ``self`` what the model's own first layers
            say, ``ngram+draft`` several of these; ``off`` does not.
            Never changes a result on batch-invariant engines. None is ``draft`` where one is
            given, else ``off``.
        draft: Artifact of a draft model with the same tokenizer; None is the artifact's own.
        num_speculative_tokens: Always so many drafts for a request; None is as many as pay, by
            what steps cost on this machine (measured at the first load, about a second).
        cost_cache: Keep these measurements in the user's cache folder
            (`optc.runtime.speculative.costs_cache`); False measures at every load.
        batching: ``continuous`` admits requests at every step; ``static`` runs a batch to its end
            before it admits the next, ``dynamic`` collects one for ``batch_window_ms`` first:
            both for comparison. Never changes a result on batch-invariant engines.
        batch_window_ms: Window of ``dynamic`` in milliseconds.
        verify: ``full`` hashes every file first; ``size`` only looks at their lengths.

    Raises:
        ArtifactError: Not an artifact, or damaged; names the file.
        UnavailableError: No engine can be loaded here; gives the reason against each.
        InputError: There is no such ``engine``; ``kv_memory``, ``block_size``, ``threads``,
            ``token_budget``, ``max_sequences`` or ``prefill_chunk`` is no usable size,
            ``speculate`` is not known, or a draft model is missing or does not fit.
    """
    _check_counts(
        threads=threads,
        max_sequences=max_sequences,
        prefill_chunk=prefill_chunk,
        max_drafted=max_drafted,
    )
    _check_threads(threads)
    budget = parse_bytes(kv_memory, "kv_memory") if isinstance(kv_memory, str) else kv_memory
    kinds = _kinds(speculate, draft)
    count = threads or usable_threads()
    artifact = Artifact.open(path, "size")
    with artifact.contents_checked(verify):  # no file of an engine is opened before its end
        from optc.runtime.engine import Engine
        from optc.runtime.engine_info import EngineInfo
        from optc.runtime.speculative.costs_cache import CostsCache
        from optc.runtime.speculative.draft_artifact import find_draft
        from optc.runtime.speculative.drafting import Drafting, MeasuredCosts

        choice = artifact.choose(name=engine)
        engines = {"target": _Engine(artifact, choice.entry, count)}
        for role in MODELS:
            if role in kinds:
                found = find_draft(artifact, choice.entry, role, draft, verify)
                engines[role] = _Engine(*found, count)
        reader = artifact_tokenizer(artifact)
        for opened in engines.values():
            opened.prepare()
    drafting = Drafting(
        kinds,
        next((engines[role] for role in MODELS if role in engines), None),
        num_speculative_tokens,
        max_drafted,
        MeasuredCosts(
            {role: opened.key for role, opened in engines.items()},
            count,
            CostsCache() if cost_cache else None,
        ),
    )
    tokenizer = artifact.manifest.tokenizer
    loaded = Engine(
        engines["target"],
        info=EngineInfo.of(artifact.path, choice),
        tokenizer=reader,
        eos_token_ids=tokenizer.eos_token_ids if tokenizer else (),
        kv_memory_bytes=budget,
        token_budget=token_budget,
        max_sequences=max_sequences,
        prefill_chunk=prefill_chunk,
        block_size=block_size,
        prefix_cache=prefix_cache,
        prefix_eviction=prefix_eviction,
        prefix_spill=prefix_spill,
        drafting=drafting,
        batching=batching,
        batch_window_ms=batch_window_ms,
    )
    give_back_freed()  # reading a tokenizer leaves tens of megabytes behind
    return loaded


def _check_counts(**counts: int | None) -> None:
    for name, count in counts.items():
        if count is not None and count < 1:
            raise InputError(f"{count} is too few", where=name, hint="at least 1")


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
    """How tokens are drafted (`optc.runtime.speculative.kinds`)."""
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

    def __call__(self) -> Executable:
        backend = registry.backend(self.entry.backend)
        folder = self.artifact.engine_folder(self.entry)
        return backend.load(folder, self.entry.spec, self.entry.data, self.threads)

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
        special_tokens={"bos_token": entry.bos_token, "eos_token": entry.eos_token},
    )
