"""`OpenCore`: from loaded engines to a `Core`, on the thread that will run them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

from optc.errors import InputError
from optc.executable.executable import EngineSpec, Executable
from optc.runtime.kv.eviction import Eviction
from optc.runtime.kv.kv_plan import KVPlan, plan_kv, plan_with_draft
from optc.runtime.loop.core import Core
from optc.runtime.scheduling.batching import BatchingMode, make_batching
from optc.runtime.speculative.draft_model import LEAST_CHANCE, DraftModel
from optc.runtime.speculative.drafting import Drafting
from optc.runtime.spill.where import parse_spill

OpenExecutable = Callable[[], Executable]


@dataclass
class OpenCore:
    """Opens the engines, divides the memory for keys and values, and makes the speculator.

    Attributes:
        open_executable: Loads the target.
        drafting: With what tokens are drafted.
        eos_token_ids: Tokens that end a text.
        kv_memory_bytes: For keys and values of all engines; None chooses.
        token_budget: Most rows of one step; None is the engine's limit.
        max_sequences: Most requests that are served at once; None is the engine's limit.
        prefill_chunk: Most rows of a step for prompts while others decode; None is no limit.
        block_size: Tokens of a KV block; None chooses.
        prefix_cache: Keep keys and values of prefixes.
        prefix_spill: Where they go then (`optc.runtime.spill.where`); None is nowhere.
        prefix_eviction: Which of them goes first (`optc.runtime.kv.eviction`).
        batching: When waiting requests are admitted (`optc.runtime.scheduling.batching`).
        batch_window_ms: Window of dynamic batching in milliseconds.
        spec: The target's, once called.
        plan: Sizes of the target's KV pools, once called.
    """

    open_executable: OpenExecutable
    drafting: Drafting = field(default_factory=Drafting)
    eos_token_ids: Sequence[int] = ()
    kv_memory_bytes: int | None = None
    token_budget: int | None = None
    max_sequences: int | None = None
    prefill_chunk: int | None = None
    block_size: int | None = None
    prefix_cache: bool = True
    prefix_eviction: Eviction = "lru"
    prefix_spill: str | Path | None = None
    batching: BatchingMode = "continuous"
    batch_window_ms: float = 5.0
    spec: EngineSpec = field(init=False)
    plan: KVPlan = field(init=False)

    def __call__(self) -> Core:
        """Open everything; what was opened is closed again where something fails.

        Raises:
            OptcError: An engine cannot be loaded, they do not fit together, or the memory is too
                little.
        """
        with ExitStack() as on_error:
            executable = self.open_executable()
            on_error.callback(executable.close)
            draft = self.drafting.opened_draft()
            if draft is not None:
                on_error.callback(draft.close)
            core = self._core(executable, draft)
            on_error.pop_all()
        return core

    def _core(self, executable: Executable, draft: Executable | None) -> Core:
        spec = self.spec = executable.spec
        wanted = self.token_budget
        rows = spec.max_rows if wanted is None else min(wanted, spec.max_rows)
        model: DraftModel | None = None
        costs = self.drafting.measured(executable, draft)
        if draft is None:
            self.plan = plan_kv(spec, self.kv_memory_bytes, rows, self.block_size)
        else:
            check_same_vocabulary(spec, draft.spec)
            self.plan, draft_plan = plan_with_draft(
                spec, draft.spec, self.kv_memory_bytes, rows, self.block_size
            )
            model = DraftModel(
                draft,
                draft_plan,
                token_budget=rows,
                prefix_cache=self.prefix_cache,
                least_chance=0.0 if self.drafting.count else LEAST_CHANCE,
            )
        core = Core(
            executable,
            self.plan,
            eos_token_ids=self.eos_token_ids,
            token_budget=rows,
            prefix_cache=self.prefix_cache,
            prefix_eviction=self.prefix_eviction,
            spill_store=None if self.prefix_spill is None else parse_spill(self.prefix_spill),
            speculator=self.drafting.speculator(executable, model, costs),
            batching=make_batching(
                self.batching,
                self.batch_window_ms,
                min(self.max_sequences or spec.max_sequences, spec.max_logit_rows),
            ),
            max_sequences=self.max_sequences,
            prefill_chunk=self.prefill_chunk,
        )
        self.adapters = core.adapters
        return core


def check_same_vocabulary(spec: EngineSpec, draft: EngineSpec) -> None:
    """Check that token ids mean the same to a target and its draft, as far as specs tell.

    Raises:
        InputError: Their logits differ in width.
    """
    if draft.vocab_size != spec.vocab_size:
        raise InputError(
            f"the draft model knows {draft.vocab_size} tokens, the target {spec.vocab_size}",
            where="draft",
            hint="a draft must have the target's vocabulary",
        )
