"""`Submission`: a request that has been checked, on its way to the engine's thread."""

from __future__ import annotations

from dataclasses import dataclass

from optc.executable.executable import Int32
from optc.runtime.adapters.table import Adapter
from optc.runtime.handle import Handle
from optc.runtime.params import SamplingParams
from optc.runtime.requests.terms import Terms
from optc.runtime.structured.constraint import Constraint
from optc.runtime.text.detokenize import TextStream


@dataclass(frozen=True)
class Submission:
    """A valid request on its way to the engine.

    Attributes:
        handle: Where its output goes.
        prompt: [n] token ids.
        params: How to continue.
        seed: First half of its noise key.
        streams: Text of each of the n completions; empty without a tokenizer.
        arrived_s: When the caller handed it in.
        terms: How it is served.
        constraints: One for each of the n completions; empty if any output is allowed.
        adapter: Taken once for each of the n completions; None is none.
    """

    handle: Handle
    prompt: Int32
    params: SamplingParams
    seed: int
    streams: tuple[TextStream, ...]
    arrived_s: float
    terms: Terms
    constraints: tuple[Constraint, ...] = ()
    adapter: Adapter | None = None

    @property
    def ends_s(self) -> float | None:
        """When it ends at the latest, on the clock of ``arrived_s``."""
        seconds = self.terms.deadline_s
        return None if seconds is None else self.arrived_s + seconds
