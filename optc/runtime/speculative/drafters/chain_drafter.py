"""`ChainDrafter`: an engine drafts chains of tokens, wherever its keys and values lie.

It draws its tokens with the noise of the target's output positions, so that the closer the two
distributions are, the more often both draw the same token, at any temperature (Daliri et al.,
2025; compare Leviathan et al., 2023, and Chen et al., 2023).

What a request has verified since it was last drafted for is computed first, together with that of
all others; then one step for each further draft. A request that was not drafted for costs nothing
until it is again.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence

from optc.runtime.executable.executable import Executable, Float32, StepBatch
from optc.runtime.kv.kv_plan import KVPlan
from optc.runtime.requests.request import Request
from optc.runtime.sampling.sample_step import sample_step
from optc.runtime.sampling.sampler import NoToken
from optc.runtime.scheduling.chunks import Chunk
from optc.runtime.speculative.drafters.drafted_text import DraftedText
from optc.runtime.speculative.proposer import DraftRequest, Drafts
from optc.runtime.step.batch import build_batch

#: Drafts behind others that the draft model finds less likely than this hardly ever pay.
LEAST_CHANCE = 0.05


class ChainDrafter(ABC):
    """A proposer (`optc.runtime.speculative.proposer.Proposer`). Not thread-safe.

    Args:
        executable: The draft's engine, closed by `close`.
        plan: Sizes of the KV pools that it uses.
        token_budget: Most rows of one of its steps.
        least_chance: No further drafts behind those that the draft model itself finds less likely
            (`DraftedText.chance`).
    """

    def __init__(
        self, executable: Executable, plan: KVPlan, token_budget: int, least_chance: float
    ) -> None:
        spec = executable.spec
        self.executable = executable
        self.plan = plan
        self._state_groups = spec.state_groups
        self._least_chance = least_chance
        self._token_budget = min(token_budget, spec.max_rows)
        self._most = min(spec.max_sequences, spec.max_logit_rows, self._token_budget)
        self._texts: dict[int, DraftedText] = {}

    def propose(self, wanted: Sequence[DraftRequest]) -> list[Drafts]:
        """Draft for all requests together; none for one that has no room in the draft's KV pool,
        or whose prompt needs more than this step to be computed."""
        limits = {request.id: limit for request, limit in wanted}
        texts = {request.id: self._resume(request) for request, _ in wanted}
        going = self._step(self._catch_up(list(texts.values()), limits), limits)
        while going:
            going = self._step(self._next_rows(going), limits)
        return [Drafts(texts[request.id].drafts()) for request, _ in wanted]

    @abstractmethod
    def pending(self, request: Request) -> int:
        """Rows that a first draft for the request would take."""

    @abstractmethod
    def forget(self, request: Request) -> None:
        """Drop what is known of a request that ended."""

    def close(self) -> None:
        """Release the engine."""
        self.executable.close()

    @abstractmethod
    def _resume(self, request: Request) -> DraftedText:
        """The request's text with what it has verified meanwhile, drafts that failed dropped."""

    @abstractmethod
    def _computed(self, text: DraftedText, before: int) -> None:
        """Take note that ``text.num_computed`` has grown from ``before``."""

    @abstractmethod
    def _make_room(self, text: DraftedText, length: int, limits: dict[int, int]) -> bool:
        """Blocks for ``length`` tokens, if there are any; ``limits`` are of all drafted for."""

    def _catch_up(
        self, texts: list[DraftedText], limits: dict[int, int]
    ) -> list[Chunk[DraftedText]]:
        """Rows for what was verified, those first who have least to catch up with.

        Of several completions of one prompt one computes it, and the others find it in the
        prefix cache.
        """
        chunks: list[Chunk[DraftedText]] = []
        left = self._token_budget
        prompts: set[int] = set()
        for text in sorted(texts, key=lambda t: t.num_pending):
            if text.num_tokens + limits[text.id] > self.plan.max_context:
                continue
            if text.num_pending > self.plan.block_size:
                if text.leader_id in prompts:
                    continue
                prompts.add(text.leader_id)
            count = min(text.num_pending, left)
            if (
                count
                and len(chunks) < self._most
                and self._make_room(text, text.num_computed + count, limits)
            ):
                chunks.append(Chunk(text, text.num_computed, count))
                left -= count
        return chunks

    def _next_rows(self, going: Sequence[DraftedText]) -> list[Chunk[DraftedText]]:
        """Rows for the next draft of each: of the latest one, or of all where states are kept
        behind verified tokens alone, as long as a step has as many."""
        if not self._state_groups:
            return [Chunk(text, text.written, 1) for text in going]
        chunks: list[Chunk[DraftedText]] = []
        left = self._token_budget
        for text in going:
            left -= text.num_pending
            if left >= 0:
                chunks.append(Chunk(text, text.num_computed, text.num_pending))
        return chunks

    def _compute(self, chunks: Sequence[Chunk[DraftedText]], batch: StepBatch) -> Float32:
        """Logits [R, V] of the step of ``chunks``."""
        return self.executable.step(batch)

    def _step(self, chunks: list[Chunk[DraftedText]], limits: dict[int, int]) -> list[DraftedText]:
        """Compute rows and draw from the last of each; returns who goes on."""
        if not chunks:
            return []
        groups, size = len(self.executable.spec.groups), self.plan.block_size
        batch = build_batch(chunks, groups, size, states=self._state_groups)
        logits = self._compute(chunks, batch)
        for chunk in chunks:
            before = chunk.request.num_computed
            chunk.request.wrote(chunk.start + chunk.rows)
            self._computed(chunk.request, before)
        complete = [chunk.request for chunk in chunks if chunk.completes]
        rows = [text.row() for text in complete]
        drawn, _ = sample_step(self.executable, logits, rows, range(len(rows)))
        going = []
        for text, sampled in zip(complete, drawn, strict=True):
            if isinstance(sampled, NoToken):
                continue
            text.draft(sampled)
            wanted = text.num_drafted < limits[text.id] and text.chance >= self._least_chance
            if wanted and self._make_room(text, text.num_tokens, limits):
                going.append(text)
        return going
