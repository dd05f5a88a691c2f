"""`Conversation`: messages so far, and the next answer."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from optc.cli.generating.messages import Messages

if TYPE_CHECKING:
    from optc import Engine, RequestOutput, SamplingParams
    from optc.runtime.outputs import Delta


@dataclass
class Speed:
    """Figures of answers.

    Attributes:
        answers: How many.
        prompt_tokens: Of all prompts; each holds the whole conversation.
        cached_tokens: Those of them that the prefix cache saved.
        output_tokens: Of all answers.
        decoded: Tokens after the first of each answer.
        decode_s: Time that these took.
        last: The latest finished request.
    """

    answers: int = 0
    prompt_tokens: int = 0
    cached_tokens: int = 0
    output_tokens: int = 0
    decoded: int = 0
    decode_s: float = 0.0
    last: RequestOutput | None = None

    def add(self, output: RequestOutput) -> None:
        """Count an answer."""
        times = output.metrics.token_times_s
        self.answers += 1
        self.prompt_tokens += output.prompt_tokens
        self.cached_tokens += output.metrics.cached_tokens
        self.output_tokens += output.output_tokens
        self.decoded += max(0, len(times) - 1)
        self.decode_s += times[-1] - times[0] if times else 0.0
        self.last = output

    def lines(self, max_context: int) -> list[str]:
        """All of it for reading."""
        if self.last is None:
            return ["no answer yet"]
        used = self.last.prompt_tokens + self.last.output_tokens
        found = [
            f"answers: {self.answers}, of {self.output_tokens} tokens; prompts had "
            f"{self.prompt_tokens}, {self.cached_tokens} of them from the prefix cache",
            f"the conversation takes {used} of {max_context} tokens of the context",
        ]
        if self.decode_s:
            found.append(f"{self.decoded / self.decode_s:.1f} tokens/s")
        if (ttft := self.last.metrics.ttft_s) is not None:
            found.append(f"the last answer began after {ttft * 1e3:.0f} ms")
        return found


@contextmanager
def _interrupts_held() -> Iterator[None]:
    """An interrupt comes at the end of the block: one that came between a request and the handle
    that cancels it would leave the request running."""
    came: list[int] = []
    try:
        before = signal.signal(signal.SIGINT, lambda number, _: came.append(number))
    except ValueError:  # not the main thread, which alone is interrupted
        yield
        return
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, signal.SIG_DFL if before is None else before)
    if came:
        signal.raise_signal(signal.SIGINT)  # for whoever takes interrupts outside of the block


def _unseen(delta: Delta) -> None:
    """Show nothing of what a delta thinks."""


@dataclass
class Conversation:
    """A conversation with an engine.

    Attributes:
        engine: Answers.
        params: How.
        terms: How requests are served.
        variables: Of the chat template.
        messages: All messages so far.
        speed: Figures of all answers.
    """

    engine: Engine
    params: SamplingParams
    terms: Mapping[str, Any] = field(default_factory=dict)
    variables: Mapping[str, Any] = field(default_factory=dict)
    messages: Messages = field(default_factory=list)
    speed: Speed = field(default_factory=Speed)

    def reset(self) -> None:
        """Begin anew, behind what the system says."""
        self.messages = [one for one in self.messages[:1] if one["role"] == "system"]

    def ask(
        self, text: str, show: Callable[[str], None], think: Callable[[Delta], None] = _unseen
    ) -> RequestOutput:
        """The answer to what a user says, shown while it comes; both are kept if there is one.
        What the model thinks is kept beside its answer: whether the model sees it again is the
        chat template's to say.

        An interrupt ends the answer, which is kept as far as it came.

        Raises:
            RequestError: The template refuses the messages, or they do not fit the context.
            EngineError: The engine failed.
        """
        from optc import Chat

        asked = [*self.messages, {"role": "user", "content": text}]
        handle = None
        try:
            with _interrupts_held():
                handle = self.engine.submit(Chat(asked, self.variables), self.params, **self.terms)
            for delta in handle:
                think(delta)
                show(delta.text)
        except KeyboardInterrupt:
            if handle is None:
                raise
            handle.cancel()
        except BaseException:
            if handle is not None:
                handle.cancel()  # nobody takes the answer any more
            raise
        output = handle.result().raise_for_error()
        thought = {"reasoning": output.reasoning} if output.reasoning else {}
        self.messages = [*asked, {"role": "assistant", "content": output.text, **thought}]
        self.speed.add(output)
        return output
