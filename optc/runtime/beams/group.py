"""`BeamGroup`: the beams of one search, as requests that the scheduler runs like any others.

A group has ``width`` requests, its members. Each beam is a member with tokens and blocks of its
own; full blocks are shared. A beam whose next token's candidates are known is idle: it gets no
rows until all beams have theirs, and its blocks go first if others need them. Then the search
chooses: the first branch of a beam stays in its member, members whose beam ended give their blocks
back and take over a copy of the beam that branched.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from optc.errors import RequestError
from optc.runtime.beams.search import BeamSearch, Branch, Candidate, Hypothesis, likeliest
from optc.runtime.executable.executable import Float32
from optc.runtime.kv.kv_blocks import BlockCopy
from optc.runtime.outputs import Delta, FinishReason
from optc.runtime.params import SamplingParams
from optc.runtime.requests.request import Request
from optc.runtime.requests.ruled import Ruled, leave, weigh
from optc.runtime.scheduling.scheduler import Scheduler


class BeamGroup:
    """One beam search.

    Args:
        params: Its width and rules.
        eos: The model's end tokens.
        max_tokens: Longest output.

    Attributes:
        members: The requests, as many as beams; the first one reads the prompt.
    """

    def __init__(self, params: SamplingParams, eos: frozenset[int], max_tokens: int) -> None:
        ends = frozenset(params.stop_token_ids) | (frozenset() if params.ignore_eos else eos)
        self.members: list[Request] = []
        self._search = BeamSearch(
            params.beam_width or 1, ends, max_tokens, params.length_penalty, params.early_stopping
        )
        self._beams: list[Request] = []
        self._candidates: dict[int, list[Candidate]] = {}
        self._broken = False
        self._times: list[float] = []
        self._results: list[Hypothesis] | None = None

    def join(self, member: Request) -> bool:
        """Add a member; True if it is the first, which must be queued."""
        self.members.append(member)
        if len(self.members) == 1:
            self._beams.append(member)
        return len(self.members) == 1

    @property
    def ended(self) -> bool:
        """No beam wants to be computed; the results are there."""
        return self._search.done or self._broken

    def offer(self, beam: Request, logits: Float32) -> None:
        """Take the logits [V] behind a beam's last token."""
        ruled = Ruled() if beam.rules is None else beam.rules.after(beam.tokens.tolist())
        if ruled.only is not None:  # whatever its probability
            self._candidates[beam.id] = [Candidate(0.0, ruled.only)]
        else:
            allowed = np.ones(len(logits), np.bool_)
            leave(allowed, ruled)
            weigh(allowed, ruled, logits)
            self._candidates[beam.id] = likeliest(logits, self._search.wanted, allowed)
        self._broken |= not self._candidates[beam.id]
        beam.idle = True

    def advance(self, scheduler: Scheduler[Request], now: float) -> list[BlockCopy]:
        """Choose the next beams, if all have been offered their logits.

        Returns:
            The copies that must be made before their next step.
        """
        if self.ended or len(self._candidates) < len(self._beams):
            return []
        candidates = [self._candidates[beam.id] for beam in self._beams]
        outputs = [tuple(beam.output.tolist()) for beam in self._beams]
        branches = self._search.advance(candidates, outputs)
        self._candidates.clear()
        self._times.append(now)
        return [] if self.ended else self._branch(branches, scheduler)

    def result(
        self, member: Request, scheduler: Scheduler[Request], reason: FinishReason | None
    ) -> Delta:
        """End a member with one of the results, the best for the first; all members must end.

        Args:
            member: Gets the result's tokens and figures.
            scheduler: Loses the group's beams.
            reason: Why it ends; None is by its own.
        """
        if self._results is None:
            self._results = self._collect()
            for beam in self._beams:
                scheduler.remove(beam)
        result = self._results[member.index]
        member.set_output(result.tokens)
        member.cumulative_logprob = result.logprob
        member.metrics.token_times_s = self._times[: len(result.tokens)]
        if self._broken:
            member.error = RequestError(
                "the model's logits hold a NaN",
                where=f"output token {len(self._times)}",
                hint="the weights or the engine are broken for this input",
            )
            reason = "error"
        shown = result.tokens[:-1] if result.ended else result.tokens
        return Delta(
            member.index,
            _text(member, shown),
            result.tokens,
            finish_reason=reason or ("stop" if result.ended else "length"),
        )

    def _collect(self) -> list[Hypothesis]:
        """As many results as members: hypotheses, then beams that did not end."""
        beams = [
            Hypothesis(0.0, logprob, tuple(beam.output.tolist()), False)
            for beam, logprob in zip(self._beams, self._search.logprobs, strict=False)
        ]
        results = (self._search.hypotheses + beams)[: len(self.members)]
        return results + [Hypothesis(0.0, 0.0, (), False)] * (len(self.members) - len(results))

    def _branch(self, branches: Sequence[Branch], scheduler: Scheduler[Request]) -> list[BlockCopy]:
        parents = [self._beams[branch.beam] for branch in branches]
        free = [member for member in self.members if member not in parents]
        for member in free:
            if member in self._beams:
                scheduler.remove(member)
        copies: list[BlockCopy] = []
        beams: list[Request] = []
        for parent in parents:
            beam = parent
            if parent in beams:
                beam = free.pop(0)
                beam.set_output(parent.output)
                copies += scheduler.branch(parent, beam)
            beams.append(beam)
        for beam, branch in zip(beams, branches, strict=True):
            beam.append(branch.token)
            beam.idle = False
        self._beams = beams
        return copies


def _text(member: Request, tokens: Sequence[int]) -> str:
    if member.stream is None:
        return ""
    return "".join([member.stream.add(token) for token in tokens]) + member.stream.finish()
