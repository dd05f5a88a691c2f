"""`Engine`: many requests on one loaded artifact, batched continuously."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any

from optc.errors import InputError, OptcError
from optc.runtime.answers.answer_cache import AnswerCache
from optc.runtime.engine_info import EngineInfo
from optc.runtime.handle import Handle
from optc.runtime.loop.adapter_loading import load_adapter
from optc.runtime.loop.core_factory import CoreFactory
from optc.runtime.loop.replacement import OpenExecutable
from optc.runtime.loop.swapping import Swapping
from optc.runtime.loop.worker import Sleep, Worker
from optc.runtime.loop.works import Works
from optc.runtime.metrics.engine_health import EngineHealth
from optc.runtime.metrics.engine_metrics import EngineMetrics
from optc.runtime.outputs import RequestOutput
from optc.runtime.params import SamplingParams
from optc.runtime.requests.generation_request import GenerationRequest, as_request
from optc.runtime.requests.prompts import Chat, Prompt
from optc.runtime.scoring.score import Score
from optc.runtime.settings import ServeSettings
from optc.runtime.speculative.drafting import Drafting
from optc.runtime.stream import Stream
from optc.runtime.submitting.input_processor import InputProcessor
from optc.runtime.submitting.preparing import (
    OnError,
    listed,
    params_for,
    prepare_all,
    scored_requests,
)
from optc.runtime.submitting.submission import Submission
from optc.runtime.text.tokenizer import Message, Tokenizer
from optc.runtime.threads.awaiting import Submitters, submitted

if TYPE_CHECKING:
    from concurrent.futures import Future
    from typing import Unpack

    from optc.runtime.keywords import RequestTerms
    from optc.runtime.kv_events.events import StepLog
    from optc.runtime.loop.replacement import Replacement


class Engine:
    """A loaded language model. Thread-safe; use it as a context manager or `close` it. Signal
    handlers and finalizers may use it as well. One that nobody holds any more closes once the last
    request of `submit` has ended.

    Args:
        open_executable: Loads the engine; called on the engine's own thread.
        settings: How it serves; None are the defaults. What only a load needs is not looked at.
        tokenizer: For prompts and results as text; without it prompts are token ids.
        eos_token_ids: Tokens that end a text.
        drafting: With what tokens are drafted; None does not speculate.
        info: Where the engine comes from; None where it was not loaded from an artifact.
        defaults: Values of `SamplingParams` that hold where a request states none.
        log: Told of blocks of cached prefixes that come and go; None is whom the settings name.

    Raises:
        OptcError: An engine cannot be loaded, or the memory is too little.
    """

    #: Opens another artifact for `swap`; None where there is nothing to swap.
    replacement: Callable[[Path], Replacement] | None = None
    _swapping: Swapping | None = None

    def __init__(
        self,
        open_executable: OpenExecutable,
        settings: ServeSettings | None = None,
        *,
        tokenizer: Tokenizer | None = None,
        eos_token_ids: Sequence[int] = (),
        drafting: Drafting | None = None,
        info: EngineInfo | None = None,
        defaults: Mapping[str, Any] | None = None,
        log: StepLog | None = None,
    ) -> None:
        settings = settings or ServeSettings()
        ends = tuple(eos_token_ids)
        opening = CoreFactory(open_executable, settings, drafting or Drafting(), ends, log)
        after_s = settings.sleep_after
        sleep = None if after_s is None else Sleep(after_s, opening)
        worker = Worker(opening, settings.max_waiting, sleep)
        worker.serves = info
        works = Works(worker, opening.spec, opening.plan, opening.adapters)
        self._begin_with(works, settings, tokenizer, ends, info, defaults)
        self._swapping = Swapping(worker, opening)

    def _begin_with(
        self,
        works: Works,
        settings: ServeSettings,
        tokenizer: Tokenizer | None,
        eos_token_ids: tuple[int, ...],
        info: EngineInfo | None,
        defaults: Mapping[str, Any] | None,
    ) -> None:
        """Take requests for what computes them."""
        self.info = info
        self.defaults = dict(defaults or {})
        self.settings = settings
        self.tokenizer = tokenizer
        self.eos_token_ids = eos_token_ids
        self._worker = works.worker
        self.spec = works.spec
        self.kv_plan = works.plan
        self._adapters = works.adapters
        self._intake = InputProcessor(
            tokenizer,
            self.spec.vocab_size,
            self.kv_plan.max_context,
            min(self.spec.max_sequences, self.spec.max_logit_rows, self.spec.vocab_size),
            self.eos_token_ids,
            self._adapters,
            self._worker.cancel,
            self.defaults,
            self.spec.max_context,
        )
        self._submitters = Submitters()
        kept = self.settings.answer_cache_bytes if self.spec.batch_invariant else None
        self._answers = None if kept is None else AnswerCache(kept)
        # Ends the thread when the engine is dropped and when the interpreter exits.
        self._finalizer = weakref.finalize(self, self._worker.close)

    @property
    def max_context(self) -> int:
        """Longest request in tokens, prompt and output together."""
        return self.kv_plan.max_context

    def generate(
        self,
        prompts: str | Chat | Sequence[Prompt],
        params: SamplingParams | Sequence[SamplingParams] | None = None,
        *,
        on_error: OnError = "raise",
        **terms: Unpack[RequestTerms],
    ) -> list[RequestOutput]:
        """Continue all prompts, batched, and return their results in order.

        A request that fails while it runs does not hold up the others: its result has the finish
        reason ``error`` and carries the `RequestError` (``result.raise_for_error()``).

        Args:
            prompts: One text or conversation, or a sequence of prompts.
            params: For all prompts, or one for each.
            on_error: ``raise`` begins nothing if a request is invalid; ``return`` serves the others
                and gives the invalid ones a result as of those that fail while they run.
            **terms: How all are served: the other fields of `GenerationRequest`.

        Raises:
            RequestError: A request is invalid and ``on_error`` is ``raise``, the number of params
                is not that of the prompts, or the salt, the priority or the deadline is not
                allowed.
            RequestTypeError: Prompts or params are of a wrong type, whatever ``on_error`` is.
            BusyError: More requests would wait than ``max_waiting`` allows.
            EngineError: The engine failed or is closed, or this is a fork of its process.
            UnavailableError: Structured output is wanted and llguidance is not installed.
        """
        self._worker.check()
        wanted = listed(prompts)
        pairs = zip(wanted, params_for(len(wanted), params), strict=True)
        return self._serve([GenerationRequest(each, its, **terms) for each, its in pairs], on_error)

    def _serve(
        self, requests: Sequence[GenerationRequest], on_error: OnError
    ) -> list[RequestOutput]:
        prepared = prepare_all(self._intake, requests, on_error)
        submissions = [entry for entry in prepared if isinstance(entry, Submission)]
        try:
            self._hand_in(submissions)
            return [
                entry.handle.result() if isinstance(entry, Submission) else entry
                for entry in prepared
            ]
        finally:  # an interrupt must not leave requests running
            for submission in submissions:
                if not submission.handle.done:
                    submission.handle.cancel()

    def chat(
        self,
        messages: Sequence[Message],
        params: SamplingParams | None = None,
        *,
        variables: Mapping[str, object] | None = None,
        **terms: Unpack[RequestTerms],
    ) -> RequestOutput:
        """The assistant's next turn in a conversation.

        The same as `generate` with one `optc.Chat`, which all other methods take as well. Only the
        model's chat template writes control tokens: contents of messages are text. What the model
        thinks is the result's ``reasoning``, apart from its ``text``.

        Args:
            messages: ``{"role": …, "content": …}`` in order.
            params: How to continue.
            variables: Further variables of the template, such as ``tools``.
            **terms: How it is served: the other fields of `GenerationRequest`.

        Raises:
            RequestError: There is no chat template, it refuses the messages, or as of `submit`.
            EngineError, UnavailableError: As of `submit`.
        """
        (output,) = self.generate(Chat(messages, variables or {}), params, **terms)
        return output

    def score(
        self, context: Prompt, continuation: str | Sequence[int], **terms: Unpack[RequestTerms]
    ) -> Score:
        """The likelihood of a continuation behind a context: its log-probability under the
        model's own distribution, and whether greedy decoding would write it.

        Args:
            context: Text, token ids or a conversation (`optc.Chat`).
            continuation: Text or token ids. Two texts are encoded together
                (`optc.runtime.scoring.score.encode_pair`).
            **terms: How it is served: the other fields of `GenerationRequest`.

        Raises:
            RequestError: One has no token, or together they have more than the context holds.
            RequestTypeError: One is of a wrong type.
            EngineError, BusyError: As of `generate`.
        """
        (score,) = self.score_all([(context, continuation)], **terms)
        return score

    def score_all(
        self,
        pairs: Sequence[tuple[Prompt, str | Sequence[int]]],
        **terms: Unpack[RequestTerms],
    ) -> list[Score]:
        """`score` of contexts and continuations, batched, in order. Pairs with the same context
        share what is computed of it.

        Args:
            pairs: A context and a continuation each.
            **terms: How all are served: the other fields of `GenerationRequest`.

        Raises:
            RequestError, RequestTypeError, EngineError, BusyError: As of `score`, at the first
                pair that is wrong; its number is said.
        """
        self._worker.check()
        requests = scored_requests(self._intake, pairs, terms)
        return [Score.of(output) for output in self._serve(requests, "raise")]

    def submit(
        self,
        prompt: Prompt | GenerationRequest,
        params: SamplingParams | None = None,
        **terms: Unpack[RequestTerms],
    ) -> Handle:
        """Start one request; iterate the handle to stream it, in a coroutine with ``async for``.

        Args:
            prompt: Text, token ids or a conversation (`optc.Chat`); or the whole request, alone.
            params: How to continue.
            **terms: How it is served: the other fields of `GenerationRequest`.

        Raises:
            RequestError: The prompt, the params, the priority or the deadline is invalid, or no
                such adapter is loaded.
            RequestTypeError: The prompt or the params are of a wrong type.
            BusyError: More requests would wait than ``max_waiting`` allows.
            EngineError: The engine failed or is closed, or this is a fork of its process.
            UnavailableError: Structured output is wanted and llguidance is not installed.
        """
        self._worker.check()
        submission = self._intake.submission(as_request(prompt, params, terms))
        submission.handle.keep(self)
        self._hand_in([submission])
        return submission.handle

    async def asubmit(
        self,
        prompt: Prompt | GenerationRequest,
        params: SamplingParams | None = None,
        **terms: Unpack[RequestTerms],
    ) -> Handle:
        """`submit` for coroutines: the prompt is encoded and a grammar compiled on threads of the
        engine's own, so that the event loop goes on. A service knows that a request is valid
        before it begins to answer. Where its task is cancelled meanwhile, so is the request.

        Args:
            prompt, params, **terms: As of `submit`.

        Raises:
            RequestError, EngineError, UnavailableError: As of `submit`.
        """
        return await submitted(self._begin(as_request(prompt, params, terms)))

    def stream(
        self,
        prompt: Prompt | GenerationRequest,
        params: SamplingParams | None = None,
        **terms: Unpack[RequestTerms],
    ) -> Stream:
        """Deltas of one request as they come, for ``async for`` in any event loop.

        The request begins at the call, which raises what can be said without encoding a text,
        rendering a template or compiling a grammar. These are done on threads, as by `asubmit`:
        ``stream = await engine.stream(…)`` raises all that is wrong before the first delta.
        Leaving the iteration, by an error or because its task is cancelled too, cancels the
        request. A reader who is slow holds nobody up (`Handle`).

        Args:
            prompt, params, **terms: As of `submit`.

        Raises:
            RequestError, EngineError, UnavailableError: As of `submit`; what takes time to find,
                where the stream is awaited or first read.
        """
        request = as_request(prompt, params, terms)
        self._worker.check()
        self._intake.check(request)
        return Stream(self._begin(request))

    def _begin(self, request: GenerationRequest) -> Future[Handle]:
        """Submit a request on a thread."""
        given: object = request.params
        compiles = isinstance(given, SamplingParams) and given.structure is not None
        return self._submitters.begin(partial(self.submit, request), compiles=compiles)

    def _is_answered(self, submission: Submission) -> bool:
        """The answer is known, and has been given."""
        if self._answers is None or not self._answers.answer(submission, self.info):
            return False
        self._intake.discard(submission)
        return True

    def _hand_in(self, submissions: list[Submission]) -> None:
        new = [one for one in submissions if not self._is_answered(one)]
        try:
            self._worker.submit(new)
        except OptcError as error:
            for submission in new:
                self._intake.discard(submission)
                submission.handle.fail(error)
            raise

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

    def swap(self, path: str | Path) -> None:
        """Compute with the weights of another artifact from now on, without a load: one whose
        engine is the same but for its weights (`optc.artifact.same_engine`). Back again is another
        swap.

        Each request is answered by one artifact to its end: by the old one if it was handed in
        before the call, by the new one if after it, by either meanwhile. The call waits until
        those before it have ended. No cached prefix, spilled block or kept answer of old weights is
        used for new ones; adapters stay.

        Args:
            path: The artifact's folder.

        Raises:
            InputError: The engine, the tokenizer or the defaults of generation differ, or this
                kind of engine cannot exchange weights. The old ones stay.
            ArtifactError: Not an artifact, or damaged; the old weights stay.
            EngineError: The engine failed or is closed, or this is a fork of its process.
        """
        self._worker.check()
        if self._swapping is None or self.replacement is None:
            raise InputError("the engine was loaded from no artifact", where="swap")

        def taken(info: EngineInfo) -> None:
            self.info = info

        self._swapping.swap(self.replacement(Path(path)), taken)

    def metrics(self) -> EngineMetrics:
        """Counters and queues of now."""
        found = self._worker.metrics()
        if self._answers is None:
            return found
        lookups, hits = self._answers.lookups, self._answers.hits
        return replace(found, answer_lookups=lookups, answer_hits=hits)

    def health(self) -> EngineHealth:
        """State of the engine: if it takes requests, and the seconds of its present step. Waits for
        nothing."""
        return self._worker.health()

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

    def __repr__(self) -> str:
        source = f"{self.info}, " if self.info else ""
        kept = f"{self.kv_plan.bytes / 2**20:.1f} MiB for keys and values"
        return f"<optc.Engine {source}{kept}, {self._worker.state}>"
