"""Writes texts through an engine that batches continuously."""

from __future__ import annotations

import hashlib
from collections import deque
from collections.abc import Sequence

import numpy as np

from optc.runtime.encoded.request import Encoded
from optc.runtime.engine import Engine
from optc.runtime.executable.encoder_states import EncoderStates
from optc.runtime.executable.tensors import TensorsExecutable
from optc.runtime.handle import Handle
from optc.runtime.params import SamplingParams
from optc.runtime.requests.encoded_request import EncodedRequest
from optc.runtime.text_to_text.params import TextToTextParams
from optc.runtime.text_to_text.rules import Rules
from optc.runtime.text_to_text.writer import Reads, TensorWriter, Writer, Written, by_length

#: Texts whose states wait or are attended to, of one call; the next are read once fewer are.
_AT_ONCE = 64


class StepWriter:
    """Texts of all callers share steps. A text begins as soon as it is read, and others do not wait
    for its end.

    Args:
        engine: Over `optc.runtime.encoded.attending.Attending`.
    """

    def __init__(self, engine: Engine) -> None:
        self.engine = engine

    def write(
        self, sources: Sequence[Sequence[int]], read: Reads, rules: Rules, how: TextToTextParams
    ) -> list[Written]:
        """See `optc.runtime.text_to_text.writer.Writer`."""
        prompt = [rules.start, *([] if rules.first is None else [rules.first])]
        left = rules.most - len(prompt) + 1
        if not left:
            return [Written(prompt[1:], rules.ended(prompt[1:])) for _ in sources]
        params = how.params(left, rules.known.repetition_penalty)
        handles: dict[int, Handle] = {}
        begun: deque[Handle] = deque()
        try:
            for some in by_length(sources, how.batch_size):
                while len(begun) > _AT_ONCE:
                    begun.popleft().result()
                handles.update(self._begin(sources, some, prompt, read, rules, params))
                begun += (handles[at] for at in some)
            outputs = [handles[at].result().raise_for_error() for at in range(len(sources))]
        finally:  # an interrupt must not leave texts being written
            for handle in handles.values():
                if not handle.done:
                    handle.cancel()
        return [
            Written([*prompt[1:], *one.token_ids], one.finish_reason == "stop") for one in outputs
        ]

    def _begin(
        self,
        sources: Sequence[Sequence[int]],
        some: Sequence[int],
        prompt: Sequence[int],
        read: Reads,
        rules: Rules,
        params: SamplingParams,
    ) -> dict[int, Handle]:
        """Read some texts together, and begin with what is written for them."""
        tensors = read([sources[at] for at in some])
        states = [_states(sources[at], Encoded(tensors, row)) for row, at in enumerate(some)]
        return {
            at: self._submit(prompt, params, one, rules)
            for at, one in zip(some, states, strict=True)
        }

    def likeliest(
        self, source: Sequence[int], tokens: Sequence[int], read: Reads, rules: Rules
    ) -> list[int]:
        """See `optc.runtime.text_to_text.writer.Writer`. Each place is a request of one token,
        whose prompt is cached by the one before."""
        states = _states(source, Encoded(read([source]), 0))
        params = TextToTextParams().params(1, rules.known.repetition_penalty)
        forced = [] if rules.first is None else [rules.first]
        handles = [
            self._submit([rules.start, *tokens[:at]], params, states, rules)
            for at in range(len(forced), len(tokens) + 1)
        ]
        return forced + [one.result().raise_for_error().token_ids[0] for one in handles]

    def _submit(
        self, prompt: Sequence[int], params: SamplingParams, states: EncoderStates, rules: Rules
    ) -> Handle:
        own = rules if rules.any else None
        return self.engine.submit(
            EncodedRequest(list(prompt), params, salt=states.key, states=states, rules=own)
        )

    def close(self) -> None:
        """Free the engine."""
        self.engine.close()


def writer_of(engine: TensorsExecutable | Engine) -> Writer:
    """The writer of a decoder's engine."""
    return StepWriter(engine) if isinstance(engine, Engine) else TensorWriter(engine)


def _states(source: Sequence[int], encoded: Encoded) -> EncoderStates:
    """The states of one text, without those of padding."""
    key = hashlib.sha256(np.array(source, np.int64).tobytes()).hexdigest()
    return EncoderStates(key, tuple(layer[: len(source)] for layer in encoded.rows()))
