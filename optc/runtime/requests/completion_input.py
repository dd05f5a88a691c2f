"""`CompletionInput`: one completion of a prompt, as the engine's thread takes it."""

from __future__ import annotations

from dataclasses import dataclass

from optc.runtime.adapters.table import Adapter
from optc.runtime.executable.encoder_states import EncoderStates
from optc.runtime.executable.executable import Int32
from optc.runtime.params import SamplingParams
from optc.runtime.requests.ruled import TokenRules
from optc.runtime.scoring.scored_prompt import ScoredPrompt
from optc.runtime.structured.constraint import Constraint
from optc.runtime.text.detokenize import TextStream


@dataclass(frozen=True)
class CompletionInput:
    """One completion of a valid prompt.

    Attributes:
        prompt: [n] token ids, n >= 1.
        params: How to continue.
        seed: Noise key of the request; completions of one prompt share it.
        index: Which of the prompt's completions; the second half of the noise key.
        stream: Turns tokens into text; None without a tokenizer.
        arrived_s: When the caller handed it in, on the core's clock; None is now.
        salt: Requests of different salts share no cached prefixes.
        adapter: Its LoRA adapter, taken from the core's table, which gets it back at the end; None
            is none.
        constraint: Follows the grammar of its output, its own; None is any output.
        priority: Higher goes first (`optc.runtime.scheduling.policy`).
        deadline_s: When it ends at the latest, on the core's clock; None is never.
        states: What it attends to, of a decoder that attends to an encoder; None of others.
        rules: Of its tokens, beside ``params``; None is none.
        scored: Where log-probabilities of the prompt's tokens go; None are not wanted.
    """

    prompt: Int32
    params: SamplingParams
    seed: int
    index: int = 0
    stream: TextStream | None = None
    arrived_s: float | None = None
    salt: str = ""
    adapter: Adapter | None = None
    constraint: Constraint | None = None
    priority: int = 0
    deadline_s: float | None = None
    scored: ScoredPrompt | None = None
    states: EncoderStates | None = None
    rules: TokenRules | None = None
