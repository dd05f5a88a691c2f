"""`Constraint`: where one completion stands in its grammar."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

import numpy as np

from optc.runtime.params import SamplingParams
from optc.runtime.sampling.sampler import Drawn, Mask, NoToken, Sampled
from optc.runtime.structured.complaints import reason

if TYPE_CHECKING:
    from llguidance import LLMatcher


#: Processor time that the grammar of one completion may take of the engine's thread: at once, and
#: for each token on average. The common ones take well below a millisecond.
_AT_ONCE_S, _TOKEN_S = 0.25, 0.01
_TOO_SLOW = f"it takes more than {_TOKEN_S * 1000:.0f} ms a token, which holds up all requests"


class Constraint:
    """The state of one completion: what it has drawn so far, and so what may come next.

    Between steps it has consumed exactly the completion's output. Preemption does not concern it,
    and drafts leave no trace in it.

    Args:
        matcher: At the beginning of its grammar; taken over.
        mask_words: Words of its masks: ceil(V / 32) with V of its tokenizer, which may know
            tokens that the model has no logits for.
    """

    def __init__(self, matcher: LLMatcher, mask_words: int) -> None:
        self._matcher = matcher
        self.mask_words = mask_words
        #: Why the grammar cannot be followed any further; empty if it can.
        self.error = ""
        self._left_s = _AT_ONCE_S

    @property
    def ended(self) -> bool:
        """The text is complete and nothing may follow."""
        return self._matcher.is_stopped()

    def prune(
        self, drafts: Sequence[int], parents: Sequence[int] | None
    ) -> tuple[list[int], list[int] | None]:
        """The drafts and parents, as of `fill`, without those that the grammar forbids."""
        with self._spending():
            kept = list(self._reach(drafts, parents))
        tokens = [drafts[index] for index in kept]
        if parents is None:
            return tokens, None
        renumbered = {-1: -1} | {old: new for new, old in enumerate(kept)}
        return tokens, [renumbered[parents[index]] for index in kept]

    def fill(self, masks: Mask, drafts: Sequence[int], parents: Sequence[int] | None) -> None:
        """Write what may follow the output and each of the drafts.

        Args:
            masks: [1 + k, mask_words].
            drafts: [k] tokens.
            parents: [k] draft that each one follows, an earlier one, or -1; None is a chain.

        Rows of drafts that the grammar forbids or that follow its end are left as they are: they
        are never drawn from.
        """
        with self._spending():
            self._fill_row(masks[0])
            for index in self._reach(drafts, parents):
                if not self.ended:
                    self._fill_row(masks[1 + index])

    def mask_after(self, drafts: Sequence[int]) -> Mask:
        """[mask_words] what may follow the output and a chain of drafts; nothing where these are
        not allowed or end the text."""
        mask = np.zeros(self.mask_words, np.uint32)
        with self._spending():
            taken = self._matcher.try_consume_tokens(list(drafts))
            if taken == len(drafts) and not self.ended:
                self._fill_row(mask)
            self._matcher.rollback(taken)
        return mask

    def follow(self, drawn: Sequence[Drawn], params: SamplingParams) -> list[Drawn]:
        """Consume drawn tokens, and those that the grammar then forces.

        Forced tokens need no logits: drawn under their masks they would be the same. They are
        left to be drawn where logits matter, for log-probabilities, or a bias may forbid them.

        Args:
            drawn: From rows under this constraint's masks.
            params: The request's.

        Returns:
            ``drawn`` as far as the grammar goes, and the forced tokens.
        """
        with self._spending():
            taken = self._followed(drawn, params)
        self._left_s += _TOKEN_S * len(taken)
        return taken

    def _followed(self, drawn: Sequence[Drawn], params: SamplingParams) -> list[Drawn]:
        taken: list[Drawn] = []
        for sampled in drawn:
            taken.append(sampled)
            if isinstance(sampled, NoToken):
                return taken
            if not self._matcher.consume_token(sampled.token):
                self._note_error()
                return [*taken, NoToken.NOTHING_ALLOWED]
            if self.ended:
                return taken
        needs_logits = params.logprobs is not None or params.logit_bias
        return taken if needs_logits else taken + self._forced()

    def _forced(self) -> list[Drawn]:
        """Consume the tokens that must come next, in the tokenizer's own way to cut them."""
        forced = self._matcher.compute_ff_tokens()
        if forced and not self._matcher.consume_tokens(forced):
            self._note_error()
            return [NoToken.NOTHING_ALLOWED]
        return [Sampled(token, None) for token in forced]

    def _reach(self, drafts: Sequence[int], parents: Sequence[int] | None) -> Iterator[int]:
        """Indices of the drafts that the grammar allows, in order, with the matcher behind each
        in turn; at the end it is where it was."""
        trail: list[int] = []  # the drafts that the matcher has consumed
        for index in range(len(drafts)):
            path = _path(index, parents)
            shared = _common(trail, path)
            self._matcher.rollback(len(trail) - shared)
            taken = self._matcher.try_consume_tokens([drafts[at] for at in path[shared:]])
            trail = path[: shared + taken]
            if trail == path:
                yield index
        self._matcher.rollback(len(trail))

    def _fill_row(self, mask: Mask) -> None:
        if self._left_s < 0 and not self.error:
            self.error = _TOO_SLOW
        if self.error:
            mask[:] = 0
            return
        self._matcher.unsafe_compute_mask_ptr(mask.ctypes.data, mask.nbytes)
        if self._matcher.is_error():  # its masks then allow the end token
            mask[:] = 0
            self._note_error()

    @contextmanager
    def _spending(self) -> Iterator[None]:
        began = time.thread_time()  # not what other threads take meanwhile
        try:
            yield
        finally:
            self._left_s -= time.thread_time() - began

    def _note_error(self) -> None:
        self.error = reason(self._matcher.get_error())


def _path(index: int, parents: Sequence[int] | None) -> list[int]:
    """The drafts from the first on that lead to ``index``, itself included."""
    if parents is None:
        return list(range(index + 1))
    path: list[int] = []
    while index >= 0:
        path.append(index)
        index = parents[index]
    return path[::-1]


def _common(left: Sequence[int], right: Sequence[int]) -> int:
    """Length of the longest common beginning."""
    pairs = enumerate(zip(left, right, strict=False))
    return next((at for at, (a, b) in pairs if a != b), min(len(left), len(right)))
