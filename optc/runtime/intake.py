"""`Intake`: from what a caller asks for to a valid submission, on the caller's thread."""

from __future__ import annotations

import secrets
import time
from array import array
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from optc.errors import RequestError
from optc.runtime.adapters.table import AdapterTable
from optc.runtime.checks import shown
from optc.runtime.detokenize import Detokenizer, TextStream
from optc.runtime.executable import Int32
from optc.runtime.handle import Handle
from optc.runtime.params import SamplingParams
from optc.runtime.structured.compiler import GrammarCompiler
from optc.runtime.structured.constraint import Constraint
from optc.runtime.terms import Terms
from optc.runtime.tokenizer import Tokenizer
from optc.runtime.worker import Submission

#: Characters of texts that are always encoded to see how many tokens they have.
SHORT_TEXT = 1 << 16
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
                f"sampling parameters are an optc.SamplingParams, not {shown(params)}",
                where="params",
            )
        ids = self._encode(prompt)
        self._check(params)
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
        if isinstance(prompt, str):
            ids = _token_ids(self._encode_text(prompt))
            self._check_length(len(ids))
        else:
            if not _is_list(prompt):
                raise _no_prompt(prompt)
            self._check_length(len(prompt))
            ids = _token_ids(prompt)
        if ids.min() < 0 or ids.max() >= self._vocab_size:
            self._check_tokens("prompt", ids.tolist())
        return ids.astype(np.int32)

    def _encode_text(self, prompt: str) -> list[int]:
        if self._tokenizer is None:
            raise RequestError("there is no tokenizer", where="prompt", hint="give token ids")
        if not prompt:
            raise RequestError("the prompt is empty", where="prompt", hint="give some text")
        if len(prompt) > SHORT_TEXT:  # to encode much longer ones takes minutes and gigabytes
            most = max(SHORT_TEXT, self._max_context * self._tokenizer.longest_token)
            if len(prompt) > most:
                raise RequestError(
                    f"the prompt has {len(prompt)} characters; the context holds "
                    f"{self._max_context} tokens, which are {most} characters at most",
                    where="prompt",
                    hint="shorten it",
                )
        return self._tokenizer.encode(prompt)

    def _check_length(self, tokens: int) -> None:
        if not tokens:
            raise RequestError("the prompt is empty", where="prompt", hint="give some tokens")
        if tokens >= self._max_context:
            raise RequestError(
                f"the prompt has {tokens} tokens; the context holds {self._max_context}, "
                "prompt and output together",
                where="prompt",
                hint="shorten it",
            )

    def _check(self, params: SamplingParams) -> None:
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
                f"unknown token ids {shown(wrong[:5])}",
                where=where,
                hint=f"they go from 0 to {self._vocab_size - 1}",
            )


def _is_list(prompt: object) -> bool:
    """Whether it may hold token ids; bytes are integers by accident."""
    if isinstance(prompt, np.ndarray):
        return prompt.ndim == 1
    return isinstance(prompt, Sequence) and not isinstance(prompt, bytes | bytearray)


def _token_ids(prompt: Sequence[Any] | npt.NDArray[Any]) -> npt.NDArray[np.integer]:
    """[n] the integers of a list, by few calls however long it is: who runs Python holds up the
    engine's thread.

    Raises:
        RequestError: Not all of them are integers, or some are of more than 64 bits.
    """
    try:
        if isinstance(prompt, np.ndarray) and prompt.dtype.kind in "iu":
            return prompt
        return np.array(array("q", prompt))
    except (TypeError, OverflowError) as error:
        raise _no_prompt(prompt) from error


def _no_prompt(prompt: object) -> RequestError:
    return RequestError(
        f"a prompt is a text or a list of token ids, not {shown(prompt)}",
        where="prompt",
        hint="several prompts are a list of those",
    )
