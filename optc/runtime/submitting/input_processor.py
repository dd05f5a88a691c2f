"""`InputProcessor`: from what a caller asks for to a valid submission, on the caller's thread."""

from __future__ import annotations

import secrets
import time
from array import array
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import islice
from typing import Any

import numpy as np
import numpy.typing as npt

from optc.errors import RequestError, RequestTypeError
from optc.runtime.adapters.table import AdapterTable
from optc.runtime.checks import shown
from optc.runtime.executable.executable import Int32
from optc.runtime.handle import Handle
from optc.runtime.params import SamplingParams
from optc.runtime.parsing.apart import Apart, reading_of_thoughts
from optc.runtime.requests.generation_request import GenerationRequest
from optc.runtime.requests.prompts import Chat, Prompt
from optc.runtime.scoring.score import encode_pair, joined
from optc.runtime.structured.compiler import GrammarCompiler
from optc.runtime.structured.constraint import Constraint
from optc.runtime.submitting.submission import Submission
from optc.runtime.text.detokenize import Detokenizer, TextStream
from optc.runtime.text.tokenizer import Tokenizer
from optc.system.logs.logger import logger

#: Characters of texts that are always encoded to see how many tokens they have.
SHORT_TEXT = 1 << 16

_LOG = logger(__name__)


class InputProcessor:
    """Checks and encodes requests. Thread-safe.

    Args:
        tokenizer: None takes token ids only.
        vocab_size: V of the engine.
        max_context: Longest request in tokens, prompt and output together.
        max_beams: Most beams of a search.
        eos_token_ids: Tokens that end a text.
        adapters: The loaded LoRA adapters.
        cancel: Ends the request of a handle.
        defaults: Values of `SamplingParams` that hold where a request states none.
        own_context: The engine's own limit, of which the memory may hold less.
    """

    def __init__(  # noqa: PLR0913 - what is known of the engine
        self,
        tokenizer: Tokenizer | None,
        vocab_size: int,
        max_context: int,
        max_beams: int,
        eos_token_ids: tuple[int, ...],
        adapters: AdapterTable,
        cancel: Callable[[Handle], None],
        defaults: Mapping[str, Any] | None = None,
        own_context: int = 0,
    ) -> None:
        self._tokenizer = tokenizer
        self._vocab_size = vocab_size
        self._max_context = max_context
        self._shorten = "shorten it"
        if own_context > max_context:
            self._shorten += (
                f", or load the model with more kv_memory or a smaller token_budget: it is the "
                f"memory that holds no more, the model's own limit is {own_context}"
            )
        self._max_beams = max_beams
        self._adapters = adapters
        self._cancel = cancel
        self._defaults = defaults or {}
        self._grammars: GrammarCompiler | None = None
        if tokenizer is not None:
            self._grammars = GrammarCompiler(tokenizer, vocab_size, eos_token_ids)

    def check(self, request: GenerationRequest) -> None:
        """Refuse what is seen at once: without encoding a text, rendering a conversation or
        compiling a grammar.

        Raises:
            RequestError, RequestTypeError: As of `submission`.
        """
        params = self._with_defaults(request).params
        self._check(params)
        prompt: object = request.prompt
        longest = self._longest(params)
        if isinstance(prompt, Chat):
            self._needed_tokenizer("give token ids").check_template()
            _variables(prompt)
        elif isinstance(prompt, str):
            self._check_text(prompt)
        else:
            self._checked_ids(prompt, longest)
        if request.adapter is not None:
            self._adapters.check(request.adapter)

    def submission(self, request: GenerationRequest) -> Submission:
        """A request that the worker can take.

        Args:
            request: Its prompt is copied before it is looked at: its owner may change it meanwhile.

        Raises:
            RequestError: The prompt or the params are invalid, or no such adapter is loaded.
            RequestTypeError: The prompt or the params are of a wrong type.
            UnavailableError: Structured output is wanted and llguidance is not installed.
        """
        arrived_s = time.perf_counter()
        request = self._with_defaults(request)
        params = request.params
        ids = self._encode(request.prompt, request.parse_special, self._longest(params))
        self._check(params)
        streams: tuple[TextStream, ...] = ()
        reading = None
        if self._tokenizer is not None:
            reading = reading_of_thoughts(request, self._tokenizer)
            marked = reading is not None and reading.needs_special_tokens(self._tokenizer)
            skip = bool(params.skip_special_tokens) and not marked
            decode = partial(self._tokenizer.decode, skip_special_tokens=skip)
            context = ids.tolist()
            streams = tuple(
                TextStream(Detokenizer(decode, context), params.stop_strings)
                for _ in range(params.completions)
            )
        apart = None if reading is None else Apart(reading.reader)
        constraints = self._constraints(params)
        name = request.adapter
        _LOG.debug("a request of %d tokens, %s new ones at most", ids.size, params.max_tokens)
        return Submission(
            handle=Handle(tuple(ids.tolist()), params.completions, self._cancel, apart),
            request=request,
            prompt=ids,
            seed=secrets.randbits(64) if params.seed is None else params.seed,
            streams=streams,
            arrived_s=arrived_s,
            constraints=constraints,
            # Last: what is taken must reach the engine, which gives it back.
            adapter=None if name is None else self._adapters.take(name, params.completions),
        )

    def _with_defaults(self, request: GenerationRequest) -> GenerationRequest:
        params: object = request.params
        if not isinstance(params, SamplingParams):
            raise RequestTypeError(
                f"sampling parameters are an optc.SamplingParams, not {shown(params)}",
                where="params",
            )
        return replace(request, params=params.with_defaults(self._defaults))

    def pair(
        self, context: Prompt, continuation: str | Sequence[int], parse_special: bool
    ) -> tuple[list[int], int]:
        """Token ids of a context and what follows it, and how many are the context's.

        Raises:
            RequestError: One of them is empty, or as of `submission`.
            RequestTypeError: One is of a wrong type.
        """
        following: object = continuation
        if not isinstance(following, str):
            continuation = _token_ids(following, self._max_context + 1).tolist()
        if isinstance(context, str) and isinstance(continuation, str):
            tokenizer = self._needed_tokenizer("give token ids")
            self._check_characters(len(context) + len(continuation), tokenizer)
            encode = partial(tokenizer.encode, parse_special=parse_special)
            ids, count = encode_pair(context, continuation, encode)
        else:
            encode = partial(self._encode_bare, parse_special=parse_special)
            before = self._encode(context, parse_special, self._max_context)
            ids, count = joined(before.tolist(), continuation, encode)
        if not 0 < count < len(ids):
            what = "continuation" if count else "context"
            raise RequestError(f"the {what} has no token", where=what, hint="give some text")
        return ids, count

    def _encode_bare(self, text: str, parse_special: bool) -> list[int]:
        tokenizer = self._needed_tokenizer("give token ids")
        self._check_characters(len(text), tokenizer)
        return tokenizer.encode(text, add_special_tokens=False, parse_special=parse_special)

    def discard(self, submission: Submission) -> None:
        """Give back what a submission took that will not reach the engine."""
        if submission.adapter is not None:
            for _ in range(submission.completions):
                self._adapters.release(submission.adapter)

    def _constraints(self, params: SamplingParams) -> tuple[Constraint, ...]:
        structure = params.structure
        if structure is None or self._grammars is None:
            return ()
        return self._grammars.constraints(structure, params.completions)

    def _longest(self, params: SamplingParams) -> int:
        """Most tokens of a prompt: one that is continued leaves room for a token."""
        return self._max_context - (params.max_tokens != 0)

    def _encode(self, prompt: Prompt, parse_special: bool, longest: int) -> Int32:
        given: object = prompt
        if isinstance(prompt, Chat):
            given = self._encode_chat(prompt, parse_special)
        elif isinstance(prompt, str):
            given = self._encode_text(str.__str__(prompt), parse_special)
        return self._checked_ids(given, longest)

    def _checked_ids(self, given: object, longest: int) -> Int32:
        ids = _token_ids(given, longest + 1)
        self._check_length(len(ids), given, longest)
        if ids.min() < 0 or ids.max() >= self._vocab_size:
            self._check_tokens("prompt", ids.tolist())
        return ids.astype(np.int32)

    def _encode_text(self, prompt: str, parse_special: bool) -> list[int]:
        return self._check_text(prompt).encode(prompt, parse_special=parse_special)

    def _check_text(self, prompt: str) -> Tokenizer:
        tokenizer = self._needed_tokenizer("give token ids")
        if not prompt:
            raise RequestError("the prompt is empty", where="prompt", hint="give some text")
        self._check_characters(len(prompt), tokenizer)
        return tokenizer

    def _encode_chat(self, chat: Chat, parse_special: bool) -> list[int]:
        tokenizer = self._needed_tokenizer("give token ids")
        rendered = tokenizer.mark_chat(chat.messages, **_variables(chat))
        self._check_characters(len(rendered.text), tokenizer)
        if parse_special:
            rendered = rendered.unmarked
        return tokenizer.encode_rendered(rendered)

    def _needed_tokenizer(self, hint: str) -> Tokenizer:
        if self._tokenizer is None:
            raise RequestError("there is no tokenizer", where="prompt", hint=hint)
        return self._tokenizer

    def _check_characters(self, count: int, tokenizer: Tokenizer) -> None:
        """Refuse a text that cannot fit: to encode one that is much too long takes minutes."""
        if count <= SHORT_TEXT:
            return
        most = max(SHORT_TEXT, self._max_context * tokenizer.longest_token)
        if count > most:
            raise RequestError(
                f"the prompt has {count} characters; the context holds "
                f"{self._max_context} tokens, which are {most} characters at most",
                where="prompt",
                hint=self._shorten,
            )

    def _check_length(self, tokens: int, given: object, longest: int) -> None:
        if not tokens:
            raise RequestError("the prompt is empty", where="prompt", hint="give some tokens")
        if tokens > longest:
            count = f"at least {tokens}"
            if type(given) in (list, tuple, range, np.ndarray):  # no subclass, which may lie
                count = str(len(given))  # type: ignore[arg-type]
            raise RequestError(
                f"the prompt has {count} tokens; the context holds "
                f"{self._max_context}, prompt and output together",
                where="prompt",
                hint=self._shorten,
            )

    def _check(self, params: SamplingParams) -> None:
        if params.stop_strings and self._tokenizer is None:
            raise RequestError("stop strings need a tokenizer", hint="use stop_token_ids")
        if params.structure is not None and self._grammars is None:
            raise RequestError("structured output needs a tokenizer", where=params.structure.kind)
        if params.beam_width is not None and params.beam_width > self._max_beams:
            raise RequestError(
                f"a beam width of {params.beam_width}",
                where="beam_width",
                hint=f"at most {self._max_beams}, the sequences of one step",
            )
        self._check_tokens("stop_token_ids", params.stop_token_ids)
        self._check_tokens("logit_bias", params.logit_bias)

    def _check_tokens(self, where: str, tokens: Iterable[int]) -> None:
        wrong = [int(token) for token in tokens if not 0 <= token < self._vocab_size]
        if wrong:
            raise RequestError(
                f"unknown token ids {shown(wrong[:5])}",
                where=where,
                hint=f"they go from 0 to {self._vocab_size - 1}",
            )


def _token_ids(prompt: object, most: int) -> npt.NDArray[np.integer]:
    """A copy of the first ``most`` integers of a list, by few calls however long it is: who runs
    Python holds up the engine's thread.

    Raises:
        RequestTypeError: Not all of them are integers, or some are of more than 64 bits.
    """
    if isinstance(prompt, np.ndarray):
        if prompt.ndim != 1 or isinstance(prompt, np.ma.MaskedArray):
            raise _no_prompt(prompt)
        if prompt.dtype.kind in "iu":
            return np.array(prompt[:most])
    elif not isinstance(prompt, Sequence) or isinstance(prompt, bytes | bytearray | memoryview):
        raise _no_prompt(prompt)  # bytes are integers by accident
    try:
        return np.array(array("q", islice(prompt, most)))
    except (TypeError, ValueError, OverflowError) as error:
        raise _no_prompt(prompt) from error


def _variables(chat: Chat) -> dict[str, object]:
    names = dict(chat.variables) if isinstance(chat.variables, Mapping) else None
    if names is None or not all(isinstance(name, str) for name in names):
        raise RequestTypeError(
            f"variables of a template are a mapping, not {shown(chat.variables)}", where="variables"
        )
    return names


def _no_prompt(prompt: object) -> RequestTypeError:
    return RequestTypeError(
        f"a prompt is a text or a list of token ids, not {shown(prompt)}",
        where="prompt",
        hint="several prompts are a list of those",
    )
