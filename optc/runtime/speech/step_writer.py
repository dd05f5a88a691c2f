"""Writes transcripts through an engine that batches continuously."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial
from math import exp
from queue import SimpleQueue
from typing import Any

from optc.runtime.encoded.request import Encoded
from optc.runtime.encoded.tensor_decoder import TensorDecoder
from optc.runtime.engine import Engine
from optc.runtime.executable.encoder_states import EncoderStates
from optc.runtime.executable.tensors import TensorsExecutable
from optc.runtime.handle import Handle
from optc.runtime.outputs import RequestOutput
from optc.runtime.params import SamplingParams
from optc.runtime.requests.encoded_request import EncodedRequest
from optc.runtime.requests.ruled import TokenRules
from optc.runtime.scoring.score import SCORED
from optc.runtime.speech.rules import LanguageRules, SpeechRules
from optc.runtime.speech.tensor_writer import TensorWriter
from optc.runtime.speech.write import Transcription, Writer

_ONE = SamplingParams(max_tokens=1, temperature=0)
#: Numbers of windows: each has states of its own.
_NUMBERS = itertools.count()


class StepWriter:
    """Transcripts of all callers share steps. A window begins as soon as its states are there.

    Attributes:
        engine: Over `optc.runtime.encoded.attending.Attending`.
    """

    def __init__(self, engine: Engine) -> None:
        self.engine = engine

    def session(self) -> StepWrites:
        """For one caller."""
        return StepWrites(self.engine)

    def likeliest(self, encoded: Encoded, rules: SpeechRules, tokens: Sequence[int]) -> list[int]:
        """See `optc.runtime.speech.write.Writer`. Each place is a request of one token, whose
        prompt is cached by the one before."""
        states = _states(encoded)
        places = range(rules.prompt, min(len(tokens) + 1, rules.known.most_tokens))
        handles = [
            self.engine.submit(_request(tokens[:place], _ONE, states, rules)) for place in places
        ]
        return [one.result().raise_for_error().token_ids[0] for one in handles]

    def close(self) -> None:
        """Free the engine."""
        self.engine.close()


@dataclass(eq=False)
class _Begun:
    """A transcript that is being written.

    Attributes:
        given: It.
        states: That it attends to.
        left: Requests that it waits for; each with who takes its result.
    """

    given: Transcription
    states: EncoderStates
    left: dict[Handle, Callable[[RequestOutput], None]] = field(default_factory=dict)


class StepWrites:
    """Transcripts of one caller.

    Up to three requests write one: the probability that nobody speaks is that of a token behind the
    start, the language the likeliest one there, and both attend to the states that the transcript
    attends to.
    """

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._ended: SimpleQueue[Handle] = SimpleQueue()
        self._of: dict[Handle, _Begun] = {}

    def submit(self, some: Iterable[Transcription]) -> None:
        """See `optc.runtime.speech.write.Session`."""
        for one in some:
            begun, known = _Begun(one, _states(one.encoded)), one.how.known
            if one.how.hears and known.no_speech is not None:
                self._ask(begun, [known.start, known.no_speech], SCORED, None, _hear)
            if one.asks_language:
                rules = LanguageRules(known)
                self._ask(begun, [known.start], _ONE, rules, self._speak)
            else:
                self._write(begun)

    def wait(self) -> Transcription:
        """See `optc.runtime.speech.write.Session`."""
        while True:
            handle = self._ended.get()
            begun = self._of.pop(handle)
            take = begun.left.pop(handle)
            take(handle.result().raise_for_error())
            if not begun.left:
                return begun.given

    def close(self) -> None:
        """See `optc.runtime.speech.write.Session`."""
        for handle in self._of:
            handle.cancel()

    def _ask(
        self,
        begun: _Begun,
        prompt: Sequence[int],
        params: SamplingParams,
        rules: TokenRules | None,
        take: Callable[[_Begun, RequestOutput], None],
    ) -> None:
        handle = self._engine.submit(_request(prompt, params, begun.states, rules))
        begun.left[handle] = partial(take, begun)
        self._of[handle] = begun
        handle.add_done_callback(self._ended.put)

    def _speak(self, begun: _Begun, output: RequestOutput) -> None:
        """Write in the language that was found."""
        (begun.given.language,) = output.token_ids
        self._write(begun)

    def _write(self, begun: _Begun) -> None:
        one = begun.given
        self._ask(begun, one.prompt, one.how.params(one.room, one.seed), one.rules, _take)


def _hear(begun: _Begun, output: RequestOutput) -> None:
    scored: Any = output.prompt_logprobs
    begun.given.no_speech = exp(scored[1].logprob)


def _take(begun: _Begun, output: RequestOutput) -> None:
    found, end = list(output.token_ids), begun.given.how.known.end
    best = output.completions[0]
    total = best.cumulative_logprob
    if total is None:
        total = sum(one.logprob for one in best.logprobs or ())
    begun.given.logprob = total / max(len(found), 1)
    begun.given.tokens = found[:-1] if found[-1:] == [end] else found


def writer_of(engine: TensorsExecutable | Engine) -> Writer:
    """The writer of a decoder's engine."""
    if isinstance(engine, Engine):
        return StepWriter(engine)
    return TensorWriter(TensorDecoder(engine))


def _states(encoded: Encoded) -> EncoderStates:
    return EncoderStates(f"window {next(_NUMBERS)}", tuple(encoded.rows()))


def _request(
    prompt: Sequence[int], params: SamplingParams, states: EncoderStates, rules: TokenRules | None
) -> EncodedRequest:
    return EncodedRequest(list(prompt), params, salt=states.key, states=states, rules=rules)
