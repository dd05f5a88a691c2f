"""`Request`: the state of one completion while the engine works on it."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from optc.errors import RequestError
from optc.runtime.executable.executable import Int32
from optc.runtime.kv.kv_blocks import BlockTables
from optc.runtime.outputs import Completion, FinishReason
from optc.runtime.requests.completion_input import CompletionInput
from optc.runtime.requests.request_metrics import RequestMetrics
from optc.runtime.scheduling.policy import Rank
from optc.runtime.scoring.token_logprobs import TokenLogprobs


class Request:
    """One completion of one prompt.

    Its only progress is that ``num_computed`` catches up with ``num_tokens``; prefill, a chunk
    of prefill and decode are the same thing. At all times
    ``0 <= num_computed <= num_tokens <= max_length`` and ``num_prompt <= num_tokens``.

    One that generates nothing ends when its prompt is scored, for which the last token need not be
    computed: it is no part of ``tokens``.

    Args:
        request_id: Unique; ascending in order of arrival.
        given: The completion that was asked for.
        max_length: Most tokens, prompt and output together; above n unless it generates nothing.
        tables: Empty block tables.
        metrics: Where its latencies go.
        leader_id: The request whose prompt it shares; None is none.
    """

    def __init__(
        self,
        request_id: int,
        given: CompletionInput,
        *,
        max_length: int,
        tables: BlockTables,
        metrics: RequestMetrics,
        leader_id: int | None = None,
    ) -> None:
        prompt, adapter = given.prompt, given.adapter
        self.generates = given.params.max_tokens != 0
        if not self.generates:
            prompt = prompt[: max(1, len(prompt) - 1)]
        self.id = request_id
        self.leader_id = request_id if leader_id is None else leader_id
        self.priority = given.priority
        self.deadline_s = given.deadline_s
        self.rank = Rank(0, self.leader_id)
        self.idle = False
        self.adapter = adapter
        # Keys and values depend on the adapter: those of another are another prefix. The number
        # goes first, so that no salt that a caller chooses is read as another adapter's.
        self.salt = f"{'' if adapter is None else adapter.generation}\0{given.salt}"
        self.params = given.params
        self.seed = given.seed
        self.index = given.index
        self.max_length = max_length
        self.tables = tables
        self.metrics = metrics
        self.stream = given.stream
        self.constraint = given.constraint
        self.scored = given.scored
        self.states = given.states
        self.rules = given.rules
        self.cumulative_logprob: float | None = None
        self.num_prompt = len(prompt)
        self.num_tokens = len(prompt)
        self.num_drafted = 0
        self.draft_parents: Sequence[int] | None = None
        self.num_computed = 0
        self.num_held = 0
        self.logprobs: list[TokenLogprobs] = []
        self.finish_reason: FinishReason | None = None
        self.error: RequestError | None = None
        self._tokens = np.empty(max_length, np.int32)
        self._tokens[: len(prompt)] = prompt

    @property
    def is_beam(self) -> bool:
        """It is part of a beam search, which draws its tokens."""
        return self.params.beam_width is not None

    @property
    def num_pending(self) -> int:
        """Tokens that are not computed yet."""
        return self.num_tokens - self.num_computed

    @property
    def decodes(self) -> bool:
        """Its prompt is computed but for the last token at most. More than one token may be
        pending all the same, where a grammar forced some."""
        return self.num_computed >= self.num_prompt - 1

    @property
    def num_output(self) -> int:
        """Generated tokens so far."""
        return self.num_tokens - self.num_prompt

    @property
    def tokens(self) -> Int32:
        """[num_tokens] prompt and output; a view."""
        return self._tokens[: self.num_tokens]

    @property
    def path(self) -> Int32:
        """[num_tokens + num_drafted] the tokens and the drafts that may follow, which are one
        path only if ``draft_parents`` is None; a view."""
        return self._tokens[: self.num_tokens + self.num_drafted]

    @property
    def num_verified(self) -> int:
        """Tokens that are no drafts."""
        return self.num_tokens

    @property
    def room(self) -> int:
        """The most drafts that leave room for one token more; 0 for beams."""
        return 0 if self.is_beam else max(0, self.max_length - self.num_tokens - 1)

    @property
    def score_row(self) -> int | None:
        """The first row whose logits are still wanted to score the prompt; None is none."""
        return None if self.scored is None else self.scored.row

    @property
    def output(self) -> Int32:
        """[num_output] generated tokens; a view."""
        return self._tokens[self.num_prompt : self.num_tokens]

    def draft(self, tokens: Sequence[int], parents: Sequence[int] | None = None) -> None:
        """Set the drafts for the next step, at most ``room``.

        Args:
            tokens: [k] drafts.
            parents: [k] draft that each one follows, an earlier one, or -1 for the last known
                token; None is a chain.
        """
        self.num_drafted = len(tokens)
        self.draft_parents = parents
        if tokens:
            self._tokens[self.num_tokens : self.num_tokens + len(tokens)] = tokens

    def append(self, token: int) -> None:
        """Add a generated token."""
        self._tokens[self.num_tokens] = token
        self.num_tokens += 1

    def set_output(self, tokens: Sequence[int] | Int32) -> None:
        """Replace all generated tokens; nothing of them counts as computed."""
        self.num_computed = 0
        self.num_tokens = self.num_prompt + len(tokens)
        self._tokens[self.num_prompt : self.num_tokens] = tokens

    def completion(self) -> Completion:
        """The result for the caller, once ``finish_reason`` is set.

        Raises:
            RuntimeError: The request has not finished.
        """
        if self.finish_reason is None:
            raise RuntimeError(f"request {self.id} has not finished")
        return Completion(
            index=self.index,
            text=self.stream.text if self.stream else "",
            token_ids=tuple(self.output.tolist()),
            finish_reason=self.finish_reason,
            logprobs=tuple(self.logprobs) if self.params.logprobs is not None else None,
            metrics=self.metrics,
            error=self.error,
            cumulative_logprob=self.cumulative_logprob,
        )
