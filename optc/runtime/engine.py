"""`Engine`: many requests on one loaded artifact, batched continuously."""

from __future__ import annotations

import time
import weakref
from collections.abc import Iterable, Sequence
from pathlib import Path
from types import TracebackType

from optc.errors import RequestError
from optc.runtime.adapters.loading import load_adapter
from optc.runtime.batching import BatchingMode
from optc.runtime.engine_info import EngineInfo
from optc.runtime.eviction import Eviction
from optc.runtime.executable import EngineSpec
from optc.runtime.handle import Handle
from optc.runtime.intake import Intake, Prompt
from optc.runtime.kv_plan import KVPlan
from optc.runtime.metrics import EngineMetrics, RequestMetrics
from optc.runtime.opening import OpenCore, OpenExecutable
from optc.runtime.outputs import Completion, RequestOutput
from optc.runtime.params import SamplingParams
from optc.runtime.speculative.drafting import Drafting
from optc.runtime.terms import Terms
from optc.runtime.tokenizer import Tokenizer
from optc.runtime.worker import Submission, Worker


class Engine:
    """A loaded language model. Thread-safe; use it as a context manager or `close` it.

    Args:
        open_executable: Loads the engine; called on the engine's own thread.
        tokenizer: For prompts and results as text; without it prompts are token ids.
        eos_token_ids: Tokens that end a text.
        kv_memory_bytes: Memory for keys and values; None chooses (`optc.runtime.kv_plan`).
        token_budget: Most rows of one step; None is the engine's limit.
        max_sequences, prefill_chunk, block_size: As of `optc.load`.
        prefix_cache: Keep keys and values of prefixes for later requests.
        prefix_eviction: Which of them goes first (`optc.runtime.eviction`).
        prefix_spill: Where they go then (`optc.runtime.spill.where`); None is nowhere.
        drafting: With what tokens are drafted; None does not speculate.
        batching, batch_window_ms: When waiting requests are admitted (`optc.runtime.batching`).
        info: Where the engine comes from; None where it was not loaded from an artifact.

    Raises:
        OptcError: An engine cannot be loaded, or the memory is too little.
    """

    def __init__(
        self,
        open_executable: OpenExecutable,
        *,
        tokenizer: Tokenizer | None = None,
        eos_token_ids: Sequence[int] = (),
        kv_memory_bytes: int | None = None,
        token_budget: int | None = None,
        max_sequences: int | None = None,
        prefill_chunk: int | None = None,
        block_size: int | None = None,
        prefix_cache: bool = True,
        prefix_eviction: Eviction = "lru",
        prefix_spill: str | Path | None = None,
        drafting: Drafting | None = None,
        batching: BatchingMode = "continuous",
        batch_window_ms: float = 5.0,
        info: EngineInfo | None = None,
    ) -> None:
        self.info = info
        self.tokenizer = tokenizer
        self.eos_token_ids = tuple(eos_token_ids)
        opening = OpenCore(
            open_executable,
            drafting or Drafting(),
            eos_token_ids=self.eos_token_ids,
            kv_memory_bytes=kv_memory_bytes,
            token_budget=token_budget,
            max_sequences=max_sequences,
            prefill_chunk=prefill_chunk,
            block_size=block_size,
            prefix_cache=prefix_cache,
            prefix_eviction=prefix_eviction,
            prefix_spill=prefix_spill,
            batching=batching,
            batch_window_ms=batch_window_ms,
        )
        self._worker = Worker(opening)
        self.spec: EngineSpec = opening.spec
        self.kv_plan: KVPlan = opening.plan
        self._adapters = opening.adapters
        self._intake = Intake(
            tokenizer,
            self.spec.vocab_size,
            self.kv_plan.max_context,
            min(self.spec.max_sequences, self.spec.max_logit_rows, self.spec.vocab_size),
            self.eos_token_ids,
            self._adapters,
            self._worker.cancel,
        )
        # Ends the thread when the engine is dropped and when the interpreter exits.
        self._finalizer = weakref.finalize(self, self._worker.close)

    @property
    def max_context(self) -> int:
        """Longest request in tokens, prompt and output together."""
        return self.kv_plan.max_context

    def generate(
        self,
        prompts: str | Sequence[Prompt],
        params: SamplingParams | Sequence[SamplingParams] | None = None,
        *,
        salt: str = "",
        priority: int = 0,
        deadline_s: float | None = None,
        adapter: str | None = None,
    ) -> list[RequestOutput]:
        """Continue all prompts, batched, and return their results in order.

        An invalid prompt does not hold up the others: its result has the finish reason
        ``error`` and carries the `RequestError` (``result.raise_for_error()``).

        Args:
            prompts: One text, or a sequence of prompts.
            params: For all prompts, or one for each.
            salt, priority, deadline_s, adapter: As of `submit`.

        Raises:
            RequestError: The prompts are no list, the number of params is not that of the prompts,
                or the salt, the priority or the deadline is not allowed.
            EngineError: The engine failed.
            UnavailableError: Structured output is wanted and llguidance is not installed.
        """
        terms = Terms(salt=salt, priority=priority, deadline_s=deadline_s, adapter=adapter)
        wanted = _listed(prompts)
        per_prompt = self._params_for(wanted, params)
        handles = self._prepare_all(wanted, per_prompt, terms)
        submissions = [entry for entry in handles if isinstance(entry, Submission)]
        self._worker.submit(submissions)
        try:
            return [
                entry.handle.result() if isinstance(entry, Submission) else entry
                for entry in handles
            ]
        finally:  # an interrupt must not leave requests running
            for submission in submissions:
                if not submission.handle.done:
                    submission.handle.cancel()

    def submit(
        self,
        prompt: Prompt,
        params: SamplingParams | None = None,
        *,
        salt: str = "",
        priority: int = 0,
        deadline_s: float | None = None,
        adapter: str | None = None,
    ) -> Handle:
        """Start one request; iterate the handle to stream it.

        Args:
            prompt: Text or token ids.
            params: How to continue.
            salt: A tenant's name: requests of different salts share no cached prefixes, so that
                latencies tell nothing about the prompts of others.
            priority: Higher goes first, and later ones make room for it; who waits gains on
                newcomers, so that nobody starves (`optc.runtime.policy` states the bound).
            deadline_s: Seconds from now when the request ends at the latest, with what it has
                and the finish reason ``deadline``; seen between steps. None is no deadline.
            adapter: Name of a loaded LoRA adapter (`load_adapter`); None is the model itself.

        Raises:
            RequestError: The prompt, the params, the priority or the deadline is invalid, or no
                such adapter is loaded.
            EngineError: The engine failed or is closed.
            UnavailableError: Structured output is wanted and llguidance is not installed.
        """
        terms = Terms(salt=salt, priority=priority, deadline_s=deadline_s, adapter=adapter)
        submission = self._intake.submission(prompt, params or SamplingParams(), terms)
        self._worker.submit([submission])
        return submission.handle

    @property
    def adapters(self) -> tuple[str, ...]:
        """Names of the loaded LoRA adapters."""
        return self._adapters.names

    def load_adapter(self, name: str, folder: str | Path) -> None:
        """Load a LoRA adapter as PEFT saved it, between two steps; requests may run meanwhile.

        Args:
            name: What requests call it.
            folder: Holds adapter_config.json and adapter_model.safetensors.

        Raises:
            InputError: The artifact takes no adapters, or not this one.
            RequestError: The name is taken, or no slot is free.
            EngineError: The engine failed or is closed.
        """
        load_adapter(self._worker, self._adapters, self.spec.adapters, name, folder)

    def unload_adapter(self, name: str) -> None:
        """Forget an adapter; requests that began with it go on to their end.

        Raises:
            RequestError: No adapter of that name.
        """
        self._adapters.unload(name)

    def metrics(self) -> EngineMetrics:
        """Counters and queues of now."""
        return self._worker.metrics()

    def close(self) -> None:
        """Cancel what runs and release the engine; again has no effect."""
        self._finalizer()

    def __enter__(self) -> Engine:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def _params_for(
        self, prompts: Sequence[Prompt], params: SamplingParams | Sequence[SamplingParams] | None
    ) -> list[SamplingParams]:
        if params is None or isinstance(params, SamplingParams):
            return [params or SamplingParams()] * len(prompts)
        if len(params) != len(prompts):
            raise RequestError(
                f"{len(params)} sampling parameters for {len(prompts)} prompts",
                hint="give one for all, or one for each",
            )
        return list(params)

    def _prepare_all(
        self, prompts: list[Prompt], params: list[SamplingParams], terms: Terms
    ) -> list[Submission | RequestOutput]:
        prepared: list[Submission | RequestOutput] = []
        try:
            for one, its in zip(prompts, params, strict=True):
                prepared.append(self._prepare(one, its, terms))
        except BaseException:
            for entry in prepared:
                if isinstance(entry, Submission):
                    self._intake.discard(entry)
            raise
        return prepared

    def _prepare(
        self, prompt: Prompt, params: SamplingParams, terms: Terms
    ) -> Submission | RequestOutput:
        arrived_s = time.perf_counter()
        try:
            return self._intake.submission(prompt, params, terms)
        except RequestError as error:
            failed = Completion(0, "", (), "error", None, RequestMetrics(arrived_s), error)
            return RequestOutput((), (failed,))


def _listed(prompts: str | Sequence[Prompt]) -> list[Prompt]:
    if isinstance(prompts, str):
        return [prompts]
    if isinstance(prompts, Iterable):
        return list(prompts)
    raise RequestError(f"prompts are a text or a list, not {prompts!r}", where="prompts")
