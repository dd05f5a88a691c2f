"""`DraftModel`: a smaller model drafts, with an engine and KV blocks of its own."""

from __future__ import annotations

from optc.runtime.executable.executable import Executable
from optc.runtime.kv.kv_blocks import KVBlocks
from optc.runtime.kv.kv_plan import KVPlan
from optc.runtime.requests.request import Request
from optc.runtime.speculative.drafters.chain_drafter import ChainDrafter
from optc.runtime.speculative.drafters.drafted_text import DraftedText


class DraftModel(ChainDrafter):
    """A `ChainDrafter` that computes all of a text itself. Not thread-safe.

    Args:
        executable: As of `ChainDrafter`; its KV pools are allocated here.
        plan: Sizes of its KV pools.
        token_budget: As of `ChainDrafter`.
        prefix_cache: Keep the keys and values of prefixes, also for completions of one prompt.
        least_chance: As of `ChainDrafter`.
    """

    def __init__(
        self,
        executable: Executable,
        plan: KVPlan,
        *,
        token_budget: int,
        prefix_cache: bool = True,
        least_chance: float = 0.0,
    ) -> None:
        super().__init__(executable, plan, token_budget, least_chance)
        self._blocks = KVBlocks(
            tuple(group.window for group in executable.spec.groups),
            plan.blocks,
            plan.block_size,
            states=executable.spec.state_groups,
            prefix_cache=prefix_cache,
        )
        executable.allocate_kv(plan.blocks, plan.block_size)

    def forget(self, request: Request) -> None:
        """Free the blocks of a request that ended."""
        text = self._texts.pop(request.id, None)
        if text is not None:
            self._blocks.free(text.tables)

    def pending(self, request: Request) -> int:
        """Rows that a first draft for the request would take, the prefix cache apart."""
        text = self._texts.get(request.id)
        return request.num_tokens - (0 if text is None else text.num_computed)

    def available(self) -> tuple[int, ...]:
        """Blocks that are free or only cached, by KV group."""
        return self._blocks.available()

    def check_integrity(self) -> None:
        """Check the blocks.

        Raises:
            RuntimeError: A block leaked or is held twice.
        """
        self._blocks.check_integrity(self._texts.values())

    def _resume(self, request: Request) -> DraftedText:
        """The request's text with what it has verified meanwhile, drafts that failed dropped."""
        text = self._texts.get(request.id)
        if text is None:
            text = self._texts[request.id] = DraftedText(request, self._blocks.new_tables())
        before = text.num_computed
        if self._blocks.states:  # no draft is computed for good
            text.written = text.num_computed
        text.resume()
        self._computed(text, before)
        # Completions of one prompt, and requests whose blocks were taken, find it in the cache.
        if text.num_pending > self.plan.block_size and self._blocks.catch_up(text):
            text.resume_from(text.num_computed)
        return text

    def _computed(self, text: DraftedText, before: int) -> None:
        """Cache and release blocks after ``text.num_computed`` has grown from ``before``."""
        if text.num_computed > before:
            self._blocks.store(text, before)
            self._blocks.release_behind(text.tables, text.num_computed)

    def _make_room(self, text: DraftedText, length: int, limits: dict[int, int]) -> bool:
        """Blocks for ``length`` tokens, if need be those of requests not drafted for now."""
        if self._blocks.grow(text.tables, length):
            return True
        for other in self._texts.values():
            if other.id not in limits and other.num_computed:
                self._blocks.free(other.tables)
                other.resume_from(0)
                if self._blocks.grow(text.tables, length):
                    return True
        return False
