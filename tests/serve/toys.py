"""Engines for tests of the server: the toy, one that waits, and one that says what it is told."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from optc.runtime.engine import Engine
from optc.runtime.executable.adapter_spec import ModuleWeights
from optc.runtime.executable.executable import Float32, StepBatch, StepInterface
from optc.runtime.kv_events.events import StepLog
from optc.runtime.settings import ServeSettings
from optc.runtime.text.tokenizer import Tokenizer
from tests.runtime.support.texts import byte_level
from tests.runtime.support.toy import ToyExecutable, toy_spec

#: Shows every message: who said it, what, and what it calls; then the tools.
TEMPLATE = (
    "{% for m in messages %}{{ m.role[0] }}:{{ m.content or '' }}"
    "{% for c in m.tool_calls or [] %}<{{ c.function.name ~ c.function.arguments.x }}>"
    "{% endfor %};{% endfor %}"
    "{% if tools %}[{{ tools | length }}]{% endif %}a:"
)
SPEC = toy_spec((0, 6), vocab=280, max_context=512, max_sequences=4)


class WaitingExecutable(ToyExecutable):
    """Each step waits until it may go."""

    def __init__(self, spec: StepInterface = SPEC) -> None:
        super().__init__(spec)
        self.steps = threading.Semaphore(0)

    def step(self, batch: StepBatch) -> Float32:
        self.steps.acquire()
        return super().step(batch)

    def let_go(self, steps: int = 1 << 20) -> None:
        """Let so many steps go."""
        self.steps.release(steps)


class FailingExecutable(ToyExecutable):
    """Fails in a step."""

    def __init__(self, after: int, spec: StepInterface = SPEC) -> None:
        super().__init__(spec)
        self.left = after

    def step(self, batch: StepBatch) -> Float32:
        if not self.left:
            raise RuntimeError("no more steps")
        self.left -= 1
        return super().step(batch)


class AdaptedExecutable(ToyExecutable):
    """Takes adapters; one in slot i adds i + 1 to the id of each token that would be drawn."""

    def step(self, batch: StepBatch) -> Float32:
        logits = super().step(batch)
        if batch.adapters is not None:
            slots = batch.adapters[batch.logit_rows]
            logits = np.stack([np.roll(row, n + 1) for row, n in zip(logits, slots, strict=True)])
        return logits

    def write_adapter(self, slot: int, modules: Sequence[ModuleWeights | None]) -> None:
        assert modules[0] is not None


class SayingExecutable(ToyExecutable):
    """Says one text behind prompts of one length, then ends.

    Args:
        tokens: Of the text.
        prompt: Tokens of the prompt.
    """

    def __init__(self, tokens: Sequence[int], prompt: int, spec: StepInterface = SPEC) -> None:
        super().__init__(spec)
        self.tokens = [*tokens, 1]
        self.prompt = prompt

    def step(self, batch: StepBatch) -> Float32:
        logits = super().step(batch)
        for row, at in enumerate(batch.logit_rows):
            place = int(batch.positions[at]) - self.prompt + 1
            if 0 <= place < len(self.tokens):
                logits[row] = 0
                logits[row, self.tokens[place]] = 50
        return np.ascontiguousarray(logits)


def tokenizer(template: str = TEMPLATE, special: Sequence[str] = ()) -> Tokenizer:
    """One token a byte, and ``special`` ones, with a chat template."""
    backend = byte_level()
    backend.add_special_tokens(list(special))
    return Tokenizer(backend, chat_template=template, special_tokens={"eos_token": "</s>"})


def toy_engine(
    executable: Callable[[], ToyExecutable] | None = None,
    *,
    template: str = TEMPLATE,
    special: Sequence[str] = (),
    defaults: dict[str, Any] | None = None,
    log: StepLog | None = None,
    kv_memory: str = "1MiB",
    **settings: Any,
) -> Engine:
    """An engine on the toy, or on another executable."""
    return Engine(
        executable or (lambda: ToyExecutable(SPEC)),
        ServeSettings(kv_memory=kv_memory, **settings),
        tokenizer=tokenizer(template, special),
        eos_token_ids=(1,),
        defaults=defaults,
        log=log,
    )


def saying(
    text: str,
    messages: Sequence[Any],
    template: str = TEMPLATE,
    special: Sequence[str] = (),
    **variables: Any,
) -> Engine:
    """An engine that says ``text`` to these messages."""
    spoken = tokenizer(template, special)
    prompt = len(spoken.encode_chat(messages, **variables))
    tokens = spoken.encode(text, add_special_tokens=False, parse_special=True)
    return toy_engine(lambda: SayingExecutable(tokens, prompt), template=template, special=special)
