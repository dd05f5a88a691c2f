"""`ServeSettings`: how an engine serves, for `optc.load`, the engine and the simulator."""

from __future__ import annotations

import math
from dataclasses import dataclass, fields
from numbers import Integral
from pathlib import Path
from typing import Any, Literal

from optc.errors import InputError
from optc.runtime.kv.eviction import Eviction
from optc.runtime.speculative.kinds import MAX_DRAFTED
from optc.system.options.option import normalize, option, options_of
from optc.system.units import SIZE_HELP, parse_memory


@dataclass(frozen=True, kw_only=True)
class ServeSettings:
    """Settings of a server, checked when they are built as far as they can be without its engine.

    None of them but ``generation_defaults`` changes a result on batch-invariant engines.

    Attributes:
        engine: Name of one of the artifact's engines; None is the one that suits this machine best
            (docs/runtime.md). ``Engine.info`` says which that is and why not another.
        threads: Threads of the engine, at most the CPUs of the machine; None is what this process
            may use.
        kv_memory: Memory for keys and values, ``"2GiB"`` or bytes; None is enough for all
            sequences at full length, at most 2 GiB and a quarter of the available memory.
        resident_memory: Memory for weights, ``"8GiB"`` or bytes, where it is less than they have:
            those that steps use most often stay in it, the others are read from the disk in every
            step that uses them (docs/how-to/run-models-larger-than-memory.md). None keeps all that
            fit into the memory that is left, else as many as half of it holds.
        token_budget: Most rows of one step; None is the engine's limit.
        max_sequences: Most requests that are served at once, others wait; None is the engine's
            limit.
        max_waiting: Most requests whose first step is not over; one more is refused at once
            (`optc.BusyError`), so that a service can turn clients away. None is no bound.
        prefill_chunk: Most rows of a step that prompts get while others decode, which bounds how
            long new prompts hold up running answers; None leaves that to ``token_budget``.
        block_size: Tokens of a KV block; None chooses.
        prefix_cache: Keep the keys and values of prefixes for later requests that begin alike.
            Without effect on engines that are not batch-invariant.
        prefix_eviction: Which of them goes first when others need the room: the least recently used
            (``lru``), or the least frequently used (``lfu``), with aging.
        prefix_spill: Where evicted ones go: ``"1GiB"`` of memory, or a folder, ``"/var/tmp"`` or
            with the file's size ``"/var/tmp:10GiB"`` (default: a quarter of what is free).
            Restored on a hit where that is faster than to compute them; None drops them.
        answer_cache: Memory for finished answers. A request that comes again, with the same
            prompt, parameters, salt, and a seed unless it is greedy, gets the same answer without
            being computed. Without effect on engines that are not batch-invariant. None keeps none.
        kv_events: Where events of cached prefixes are published for routers, in vLLM's form:
            ``ADDRESS[,replay=ADDRESS][,topic=TEXT]`` of ZeroMQ. Needs the extra ``kv-events``. Of
            requests with a salt nothing is told. None publishes none.
        speculate: Drafts tokens and verifies several in one step, while that pays: ``ngram`` what
            the request's own text repeats, ``lookahead`` also what the model said behind rejected
            drafts, ``draft`` what a smaller model says, ``self`` what the model's own first layers
            say, ``medusa`` and ``eagle`` what heads or a layer on the model's last hidden state
            say, ``ngram+draft`` several of these; ``off`` does not. None is ``draft`` where one is
            given, else ``off``.
        draft: Artifact of a draft model with the same tokenizer; None is the artifact's own.
        num_speculative_tokens: Always so many drafts for a request; None is as many as pay, by
            what steps cost on this machine (measured at the first load, about a second).
        max_drafted: Most drafts of a request in a step, if ``speculate`` is on.
        sleep_after: Free weights, keys and values after so many seconds without a request; the next
            one loads them again, and waits for that. An engine whose adapters are loaded stays
            awake. None never sleeps.
        cost_cache: Keep these measurements in the user's cache folder
            (`optc.runtime.speculative.planning.costs_cache`); False measures at every load.
        generation_defaults: What the model's own settings say (``Engine.defaults``) holds
            where a request states nothing else; False leaves it to `SamplingParams`.
        verify: ``full`` hashes every file of the artifact first; ``size`` only looks at their
            lengths.

    Raises:
        InputError: A size or a number is not usable.
    """

    engine: str | None = option(
        None, "Name of the engine to load [the best one for this machine].", metavar="NAME"
    )
    threads: int | None = option(
        None, "Number of CPU threads [all usable].", kind="count", metavar="N"
    )
    kv_memory: str | int | None = option(
        None, f"Memory of the KV cache, {SIZE_HELP}.", metavar="SIZE"
    )
    resident_memory: str | int | None = option(
        None,
        "Memory for weights, hot ones first; the others are read from disk [all that fit].",
        metavar="SIZE",
    )
    token_budget: int | None = option(
        None, "Maximum number of tokens in a step [the engine's limit].", kind="count", metavar="N"
    )
    max_sequences: int | None = option(
        None, "Maximum number of sequences at once [the engine's limit].", kind="count", metavar="N"
    )
    max_waiting: int | None = None
    prefill_chunk: int | None = option(
        None,
        "Maximum number of prompt tokens in a step while others decode (chunked prefill).",
        kind="count",
        metavar="N",
    )
    block_size: int | None = option(
        None, "Tokens in a block of the KV cache.", kind="count", metavar="N"
    )
    prefix_cache: bool = True
    prefix_eviction: Eviction = "lru"
    prefix_spill: str | Path | None = option(
        None,
        "Place for evicted blocks of the prefix cache: a size of memory, or a folder.",
        metavar="SIZE|FOLDER",
    )
    answer_cache: str | int | None = option(
        None, "Memory of the cache of whole answers.", metavar="SIZE"
    )
    kv_events: str | None = option(
        None,
        "Publish cached prefixes for routers at this address of ZeroMQ, in vLLM's form.",
        metavar="ADDRESS",
    )
    speculate: str | None = option(
        None,
        "Draft tokens: ngram, lookahead, draft, self, eagle, medusa, or some joined by +; same "
        "output, fewer steps [off].",
        metavar="KIND",
    )
    draft: Path | None = option(
        None, "Artifact of a draft model [the one in ARTIFACT].", kind="path", metavar="FOLDER"
    )
    num_speculative_tokens: int | None = option(
        None, "Number of tokens to draft [as many as pay].", kind="count", metavar="N"
    )
    max_drafted: int = option(
        MAX_DRAFTED,
        "Maximum number of drafted tokens of a sequence in a step.",
        kind="count",
        metavar="N",
    )
    sleep_after: float | None = option(
        None,
        "Unload the model after so many idle seconds; the next request loads it again.",
        kind="number",
        metavar="SECONDS",
    )
    cost_cache: bool = True
    generation_defaults: bool = option(
        True,
        "Use the defaults of the model's generation_config.json [true].",
        kind="truth",
        choices=("true", "false"),
    )
    verify: Literal["full", "size"] = "full"

    def __post_init__(self) -> None:
        normalize(self)
        for name, one in options_of(ServeSettings).items():
            count = getattr(self, name)
            if one.kind == "count" and count is not None:
                _check_count(name, count)
        if self.max_waiting is not None:
            _check_count("max_waiting", self.max_waiting)
        if self.kv_events is not None:
            from optc.runtime.kv_events.publisher import parse_endpoints

            parse_endpoints(self.kv_events)
        if self.sleep_after is not None and not 0 < self.sleep_after < math.inf:
            raise InputError(f"{self.sleep_after} seconds", where="sleep_after", hint="above 0")
        if isinstance(self.kv_memory, str):
            object.__setattr__(self, "kv_memory", parse_memory(self.kv_memory, "kv_memory"))
        if self.resident_memory is not None:
            kept = parse_memory(self.resident_memory, "resident_memory")
            object.__setattr__(self, "resident_memory", kept)
        if self.answer_cache is not None:
            kept = parse_memory(self.answer_cache, "answer_cache")
            object.__setattr__(self, "answer_cache", kept)

    @property
    def kv_memory_bytes(self) -> int | None:
        """``kv_memory`` in bytes."""
        return None if self.kv_memory is None else int(self.kv_memory)

    @property
    def resident_memory_bytes(self) -> int | None:
        """``resident_memory`` in bytes."""
        return None if self.resident_memory is None else int(self.resident_memory)

    @property
    def answer_cache_bytes(self) -> int | None:
        """``answer_cache`` in bytes."""
        return None if self.answer_cache is None else int(self.answer_cache)

    def step_rows(self, limit: int) -> int:
        """Most rows of one step of an engine that takes ``limit``."""
        return limit if self.token_budget is None else min(self.token_budget, limit)

    def differing(self) -> dict[str, Any]:
        """The settings that are not the defaults: keywords of `optc.load`."""
        return {
            f.name: getattr(self, f.name)
            for f in fields(self)
            if getattr(self, f.name) != f.default
        }


def _check_count(name: str, count: object) -> None:
    if isinstance(count, bool) or not isinstance(count, Integral):
        raise InputError(f"{count!r} is no number", where=name, hint="a whole number")
    if int(count) < 1:
        raise InputError(f"{count} is too few", where=name, hint="at least 1")


#: Names of all settings.
NAMES = tuple(f.name for f in fields(ServeSettings))
#: Those that the command line may have.
OPTIONS = tuple(options_of(ServeSettings))
