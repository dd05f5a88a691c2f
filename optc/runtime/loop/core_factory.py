"""`CoreFactory`: from loaded engines to a `Core`, on the thread that will run them."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace

from optc.errors import InputError, OptcError
from optc.runtime.executable.executable import (
    Executable,
    SharingExecutable,
    StepInterface,
    SwappingExecutable,
)
from optc.runtime.executable.shared_kv import can_share
from optc.runtime.kv.kv_plan import KVPlan, plan_kv, plan_with_draft
from optc.runtime.kv_events.events import EventLog, StepLog
from optc.runtime.loop.core import Core
from optc.runtime.loop.replacement import OpenExecutable, Replacement
from optc.runtime.settings import ServeSettings
from optc.runtime.speculative.drafters.chain_drafter import LEAST_CHANCE, ChainDrafter
from optc.runtime.speculative.drafters.draft_model import DraftModel
from optc.runtime.speculative.drafters.eagle import EagleModel
from optc.runtime.speculative.drafters.shared_kv import SharedKVDraft
from optc.runtime.speculative.drafting import Drafting
from optc.runtime.spill.where import parse_spill
from optc.system.available import available_memory
from optc.system.units import byte_text


@dataclass
class CoreFactory:
    """Opens the engines, divides the memory for keys and values, and makes the speculator.

    Attributes:
        open_executable: Loads the target.
        settings: How it serves.
        drafting: With what tokens are drafted.
        eos_token_ids: Tokens that end a text.
        log: Told of blocks of cached prefixes that come and go; None is whom the settings name.
        spec: The target's, once called.
        plan: Sizes of the target's KV pools, once called.
    """

    open_executable: OpenExecutable
    settings: ServeSettings = field(default_factory=ServeSettings)
    drafting: Drafting = field(default_factory=Drafting)
    eos_token_ids: Sequence[int] = ()
    log: StepLog | None = None
    spec: StepInterface = field(init=False)
    plan: KVPlan = field(init=False)
    _kv_bytes: int = field(init=False)

    def __call__(self, before: Core | None = None) -> Core:
        """Open everything; what was opened is closed again where something fails.

        Args:
            before: The core whose place the new one takes, with the sizes of its pools.

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
            core = self._core(executable, draft, before)
            on_error.pop_all()
        return core

    def swapped(self, before: Core, new: Replacement) -> Core:
        """A core that computes with other weights, in the place of one that has nothing to do. What
        was computed with the old ones is forgotten.

        Raises:
            InputError: The engine cannot exchange its weights; ``before`` goes on.
            OptcError: The weights, or what drafts beside them, cannot be opened; ``before`` goes
                on.
        """
        executable = before.executable
        if not isinstance(executable, SwappingExecutable):
            raise InputError(
                "the weights of this kind of engine cannot be exchanged",
                where=str(new.folder),
                hint="load the artifact as another model",
            )
        draft = new.drafting.opened_draft()
        try:
            executable.use_weights(new.folder)
        except BaseException:
            if draft is not None:
                draft.close()
            raise
        before.leave()
        self.open_executable = new.open_executable
        # the same code takes the same time
        self.drafting = replace(new.drafting, costs=self.drafting.costs)
        try:
            return self._core(executable, draft, before)
        except OptcError as error:  # there is no way back
            raise RuntimeError("the engine cannot go on with new weights") from error

    def _core(self, executable: Executable, draft: Executable | None, before: Core | None) -> Core:
        spec = self.spec = executable.spec
        settings = self.settings
        rows = settings.step_rows(spec.max_rows)
        model: ChainDrafter | None = None
        shares, both = False, 0
        if draft is not None:
            check_same_vocabulary(spec, draft.spec)
            shares = isinstance(draft, SharingExecutable) and can_share(draft.spec, spec)
        costs = self.drafting.measured(executable, draft, reads=not shares)
        # What was free before counts: requests are checked against the first plan.
        budget = settings.kv_memory_bytes if before is None else self._kv_bytes
        memory = (budget, rows, settings.block_size)
        if draft is None:
            self.plan = plan_kv(spec, *memory)
        elif shares:
            self.plan = plan_kv(spec, *memory)
            model = SharedKVDraft(
                draft, executable, self.plan, token_budget=rows, least_chance=self._least_chance
            )
        else:
            self.plan, draft_plan = plan_with_draft(spec, draft.spec, *memory)
            model = self._draft_model(executable, draft, draft_plan, rows)
            both = draft_plan.bytes
        if before is None:
            self._kv_bytes = self.plan.bytes + both
            check_room(settings.resident_memory_bytes or 0, self._kv_bytes)
        spill = settings.prefix_spill
        core = Core(
            executable,
            self.plan,
            settings,
            eos_token_ids=self.eos_token_ids,
            spill_store=None if spill is None else parse_spill(spill),
            speculator=self.drafting.speculator(executable, model, costs),
            log=self._log,
        )
        if before is not None:
            core.take_over(before)
        self.adapters = core.adapters
        return core

    def _draft_model(
        self, executable: Executable, draft: Executable, plan: KVPlan, rows: int
    ) -> DraftModel:
        prefix_cache = self.settings.prefix_cache
        if self.drafting.model == "eagle":
            return EagleModel(
                draft,
                plan,
                executable,
                token_budget=rows,
                prefix_cache=prefix_cache,
                least_chance=self._least_chance,
            )
        return DraftModel(
            draft,
            plan,
            token_budget=rows,
            prefix_cache=prefix_cache,
            least_chance=self._least_chance,
        )

    @property
    def _log(self) -> StepLog | None:
        events = self.settings.kv_events
        return self.log if events is None else _event_log(events)

    @property
    def _least_chance(self) -> float:
        return 0.0 if self.drafting.count else LEAST_CHANCE


def _event_log(text: str) -> EventLog:
    from optc.runtime.kv_events.publisher import Publisher, parse_endpoints

    return EventLog(Publisher(parse_endpoints(text)))


def check_room(resident: int, kv: int) -> None:
    """Check that weights that shall stay in memory leave room for keys and values; neither has
    taken its memory yet.

    Raises:
        InputError: They do not.
    """
    left = available_memory()
    if resident and resident + kv > left:
        raise InputError(
            f"{byte_text(resident)} of weights and {byte_text(kv)} of keys and values are more "
            f"than the memory that is left, {byte_text(left)}",
            where="resident_memory",
            hint="less of either (resident_memory, kv_memory)",
        )


def check_same_vocabulary(spec: StepInterface, draft: StepInterface) -> None:
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
