"""`SharedKVDraft`: the target made cheaper drafts on the target's own keys and values.

A draft whose layers are those of the target, with weights of fewer bits or only the first of them,
computes nearly the keys and values that the target has. So it reads the target's pools: it need
not read prompts, keeps no blocks, and attends to exact keys and values of all that is verified
(draft and target share a cache in QuantSpec, arXiv 2502.10424, and in layer skipping, Elhoushi et
al., 2024, arXiv 2404.16710).

Its own rows it writes where the target's step writes them next: behind what the target has
computed, where nobody reads before they are written again. The target's text is therefore that of
plain decoding, whatever the draft writes.
"""

from __future__ import annotations

from typing import Protocol

from optc.runtime.executable.executable import Executable, SharingExecutable
from optc.runtime.executable.shared_kv import shared_groups
from optc.runtime.kv.kv_blocks import BlockTables, KVBlocks
from optc.runtime.kv.kv_plan import KVPlan
from optc.runtime.requests.request import Request
from optc.runtime.speculative.drafters.chain_drafter import ChainDrafter
from optc.runtime.speculative.drafters.drafted_text import DraftedText


class HasBlocks(Protocol):
    """Whose blocks a draft extends: the scheduler."""

    blocks: KVBlocks


class SharedKVDraft(ChainDrafter):
    """A `ChainDrafter` without keys and values of its own. Not thread-safe.

    Args:
        executable: As of `ChainDrafter`; a `SharingExecutable`.
        target: The engine that it drafts for.
        plan: Sizes of the target's KV pools.
        token_budget: As of `ChainDrafter`.
        least_chance: As of `ChainDrafter`.
    """

    def __init__(
        self,
        executable: Executable,
        target: Executable,
        plan: KVPlan,
        *,
        token_budget: int,
        least_chance: float = 0.0,
    ) -> None:
        super().__init__(executable, plan, token_budget, least_chance)
        self._target = target
        self._groups = shared_groups(executable.spec, target.spec)
        self._blocks: KVBlocks | None = None

    def attach(self, scheduler: HasBlocks) -> None:
        """Use the target's pools, which are allocated now, and the blocks of its requests.

        Raises:
            RuntimeError: The engine cannot.
        """
        if not isinstance(self.executable, SharingExecutable):
            raise RuntimeError("the draft's engine cannot use another engine's KV pools")
        self.executable.share_kv(self._target)
        self._blocks = scheduler.blocks

    def pending(self, request: Request) -> int:
        """Rows that a first draft for the request would take: those that the target lacks."""
        return request.num_pending

    def forget(self, request: Request) -> None:
        """Drop the text of a request that ended; its blocks are the scheduler's."""
        self._texts.pop(request.id, None)

    def _resume(self, request: Request) -> DraftedText:
        """The request's text, computed as far as the target has computed it."""
        text = self._texts.get(request.id)
        if text is None:
            tables = request.tables
            if self._groups != tuple(range(len(tables.blocks))):
                # The same arrays, which grow and shrink in place: a step reads nothing else.
                arrays = tuple(tables.blocks[group] for group in self._groups)
                tables = BlockTables(arrays, tables.released)
            text = self._texts[request.id] = DraftedText(request, tables)
        text.resume()
        text.resume_from(request.num_computed)
        return text

    def _computed(self, text: DraftedText, before: int) -> None:
        """Nothing: only what the target computes is kept."""

    def _make_room(self, text: DraftedText, length: int, limits: dict[int, int]) -> bool:
        """Blocks for ``length`` tokens, which the scheduler takes back if others need them."""
        if self._blocks is None:
            raise RuntimeError("the draft was not attached to its target's blocks")
        return self._blocks.grow(text.request.tables, length)
