"""`Intake`: from what a caller asks for to a valid submission, on the caller's thread."""

from __future__ import annotations

import reprlib
import secrets
import time
from collections.abc import Callable, Iterable, Sequence

import numpy as np

from optc.errors import RequestError
from optc.runtime.adapters.table import AdapterTable
from optc.runtime.detokenize import Detokenizer, TextStream
from optc.runtime.executable import Int32
from optc.runtime.handle import Handle
from optc.runtime.params import SamplingParams
from optc.runtime.structured.compiler import GrammarCompiler
from optc.runtime.structured.constraint import Constraint
from optc.runtime.terms import Terms
from optc.runtime.tokenizer import Tokenizer
from optc.runtime.worker import Submission

#: A text, which the tokenizer encodes (BOS included), or token ids, which are taken as they are.
Prompt = str | Sequence[int]


class Intake:
    """Checks and encodes requests. Thread-safe.

    Args:
        tokenizer: None takes token ids only.
        vocab_size: V of the engine.
        max_context: Longest request in tokens, prompt and output together.
        max_beams: Most beams of a search.
        eos_token_ids: Tokens that end a text.
        adapters: The loaded LoRA adapters.
        cancel: Ends the request of a handle.
    """

    def __init__(
        self,
        tokenizer: Tokenizer | None,
        vocab_size: int,
        max_context: int,
        max_beams: int,
        eos_token_ids: tuple[int, ...],
        adapters: AdapterTable,
        cancel: Callable[[Handle], None],
    ) -> None:
        self._tokenizer = tokenizer
        self._vocab_size = vocab_size
        self._max_context = max_context
        self._max_beams = max_beams
        self._adapters = adapters
        self._cancel = cancel
        self._grammars: GrammarCompiler | None = None
        if tokenizer is not None:
            self._grammars = GrammarCompiler(tokenizer, vocab_size, eos_token_ids)

    def submission(self, prompt: Prompt, params: SamplingParams, terms: Terms) -> Submission:
        """A request that the worker can take.

        Raises:
            RequestError: The prompt or the params are invalid, or no such adapter is loaded.
            UnavailableError: Structured output is wanted and llguidance is not installed.
        """
        arrived_s = time.perf_counter()
        if not isinstance(params, SamplingParams):
            raise RequestError(
                f"sampling parameters are an optc.SamplingParams, not {reprlib.repr(params)}",
                where="params",
            )
        ids = self._encode(prompt)
        self._check(ids, params)
        streams: tuple[TextStream, ...] = ()
        if self._tokenizer is not None:
            decode, context = self._tokenizer.decode, ids.tolist()
            streams = tuple(
                TextStream(Detokenizer(decode, context), params.stop_strings)
                for _ in range(params.completions)
            )
        constraints = self._constraints(params)
        name = terms.adapter
        return Submission(
            handle=Handle(tuple(ids.tolist()), params.completions, self._cancel),
            prompt=ids,
            params=params,
            seed=secrets.randbits(64) if params.seed is None else params.seed,
            streams=streams,
            arrived_s=arrived_s,
            terms=terms,
            constraints=constraints,
            # Last: what is taken must reach the engine, which gives it back.
            adapter=None if name is None else self._adapters.take(name, params.completions),
        )

    def discard(self, submission: Submission) -> None:
        """Give back what a submission took that will not reach the engine."""
        if submission.adapter is not None:
            for _ in range(submission.params.completions):
                self._adapters.release(submission.adapter)

    def _constraints(self, params: SamplingParams) -> tuple[Constraint, ...]:
        structure = params.structure
        if structure is None:
            return ()
        if self._grammars is None:
            raise RequestError("structured output needs a tokenizer", where=structure.kind)
        return self._grammars.constraints(structure, params.completions)

    def _encode(self, prompt: Prompt) -> Int32:
        if not isinstance(prompt, str):
            if not _are_token_ids(prompt):
                raise RequestError(
                    f"a prompt is a text or a list of token ids, not {reprlib.repr(prompt)}",
                    where="prompt",
                    hint="several prompts are a list of those",
                )
            self._check_tokens("prompt", prompt)
            return np.array(prompt, np.int32)
        if self._tokenizer is None:
            raise RequestError("there is no tokenizer", where="prompt", hint="give token ids")
        if not prompt:
            raise RequestError("the prompt is empty", where="prompt", hint="give some text")
        ids = self._tokenizer.encode(prompt)
        self._check_tokens("prompt", ids)
        return np.array(ids, np.int32)

    def _check(self, ids: Int32, params: SamplingParams) -> None:
        if not len(ids):
            raise RequestError("the prompt is empty", where="prompt", hint="give some tokens")
        if len(ids) >= self._max_context:
            raise RequestError(
                f"the prompt has {len(ids)} tokens; the context holds {self._max_context}, "
                "prompt and output together",
                where="prompt",
                hint="shorten it",
            )
        if params.stop_strings and self._tokenizer is None:
            raise RequestError("stop strings need a tokenizer", hint="use stop_token_ids")
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
                f"unknown token ids {wrong[:5]}",
                where=where,
                hint=f"they go from 0 to {self._vocab_size - 1}",
            )


def _are_token_ids(prompt: object) -> bool:
    """Whether a prompt that is no text is integers; bytes are integers by accident."""
    return (
        isinstance(prompt, Sequence | np.ndarray)
        and not isinstance(prompt, bytes | bytearray)
        and all(isinstance(token, int | np.integer) for token in prompt)
    )
