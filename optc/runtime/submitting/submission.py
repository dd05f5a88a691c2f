"""`Submission`: a request that has been checked, on its way to the engine's thread."""

from __future__ import annotations

from dataclasses import dataclass

from optc.runtime.adapters.table import Adapter
from optc.runtime.executable.executable import Int32
from optc.runtime.handle import Handle
from optc.runtime.requests.generation_request import GenerationRequest
from optc.runtime.scoring.scored_prompt import ScoredPrompt
from optc.runtime.structured.constraint import Constraint
from optc.runtime.text.detokenize import TextStream


@dataclass(frozen=True)
class Submission:
    """A valid request on its way to the engine.

    Attributes:
        handle: Where its output goes.
        request: What was asked for.
        prompt: [n] token ids of its prompt.
        seed: First half of its noise key.
        streams: Text of each of the n completions; empty without a tokenizer.
        arrived_s: When the caller handed it in.
        constraints: One for each of the n completions; empty if any output is allowed.
        adapter: Taken once for each of the n completions; None is none.
    """

    handle: Handle
    request: GenerationRequest
    prompt: Int32
    seed: int
    streams: tuple[TextStream, ...]
    arrived_s: float
    constraints: tuple[Constraint, ...] = ()
    adapter: Adapter | None = None

    @property
    def completions(self) -> int:
        """The number of completions of the prompt that are computed."""
        return self.request.params.completions

    def scored(self, vocab_size: int) -> ScoredPrompt | None:
        """Takes log-probabilities of the prompt; None if they are not wanted."""
        request = self.request
        if request.params.prompt_logprobs is None:
            return None
        top = request.params.prompt_logprobs
        return ScoredPrompt(self.prompt, request.scored_from, top, vocab_size)

    @property
    def ends_s(self) -> float | None:
        """When it ends at the latest, on the clock of ``arrived_s``."""
        seconds = self.request.deadline_s
        return None if seconds is None else self.arrived_s + seconds
