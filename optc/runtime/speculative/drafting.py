"""`Drafting`: with what an engine drafts, and from opened engines to the `Speculator`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from optc.errors import InputError
from optc.runtime.executable.executable import Executable, HeadedExecutable
from optc.runtime.speculative.drafters.chain_drafter import ChainDrafter
from optc.runtime.speculative.drafters.eagle import EagleModel
from optc.runtime.speculative.drafters.lookahead import LookaheadProposer
from optc.runtime.speculative.drafters.medusa import MedusaProposer, TreePlanner
from optc.runtime.speculative.drafters.ngram import NGramProposer
from optc.runtime.speculative.drafters.shared_kv import SharedKVDraft
from optc.runtime.speculative.kinds import MAX_DRAFTED, MODELS
from optc.runtime.speculative.planning.acceptance import JointAcceptance
from optc.runtime.speculative.planning.break_even import BreakEven
from optc.runtime.speculative.planning.chain_planner import ChainPlanner, Planner
from optc.runtime.speculative.planning.controller import Controller, Fixed
from optc.runtime.speculative.planning.costs_cache import CostsCache
from optc.runtime.speculative.planning.ledger import SHARE
from optc.runtime.speculative.planning.plan_drafts import Costs
from optc.runtime.speculative.planning.row_costs import RowCosts, measure_row_costs
from optc.runtime.speculative.speculator import DraftSource, Speculator

#: Another way to measure is another version.
_KIND = "row-costs.v2"


@dataclass(frozen=True)
class MeasuredCosts:
    """Costs of engines: those kept from an earlier load, else measured now and kept.

    Attributes:
        digests: Of the artifacts, by role; those of other roles are always measured.
        threads: Of the engines.
        cache: Where they are kept; None is nowhere.
    """

    digests: Mapping[str, str] = field(default_factory=dict)
    threads: int = 1
    cache: CostsCache | None = None

    def of(self, role: str, executable: Executable, *, reads: bool = False) -> RowCosts:
        """Costs of an engine that nobody uses yet; its KV pools may be replaced. What is kept but
        damaged is measured again.

        Args:
            role: The engine's.
            executable: The engine.
            reads: Of steps with logits of the last row alone.
        """
        digest = self.digests.get(role)
        if self.cache is None or digest is None:
            return measure_row_costs(executable, reads=reads)
        kind = f"{_KIND}.{role}.reading" if reads else f"{_KIND}.{role}"
        kept = self.cache.read(kind, digest, self.threads)
        if kept is not None:
            try:
                return RowCosts.from_json(kept)
            except ValueError:
                pass  # damaged: measured again below
        costs = measure_row_costs(executable, reads=reads)
        self.cache.write(kind, digest, self.threads, costs.to_json())
        return costs


@dataclass(frozen=True)
class Drafting:
    """With what an engine drafts.

    Attributes:
        kinds: In which ways, of `optc.runtime.speculative.kinds`; none does not speculate.
        open_draft: Loads the model that drafts; called on the engine's own thread.
        count: Always so many drafts for a request; None is as many as pay.
        limit: Most drafts of a request in a step, where as many are made as pay.
        costs: Of the engines.
    """

    kinds: tuple[str, ...] = ()
    open_draft: Callable[[], Executable] | None = None
    count: int | None = None
    limit: int = MAX_DRAFTED
    costs: MeasuredCosts = field(default_factory=MeasuredCosts)

    def __post_init__(self) -> None:
        if self.count is not None and self.count < 1:
            raise InputError(
                f"{self.count} drafts", where="num_speculative_tokens", hint="at least 1"
            )
        if self.count is not None and not self.kinds:
            raise InputError(
                f"{self.count} drafts are asked for, but nothing drafts",
                where="num_speculative_tokens",
                hint="say with speculate= what drafts, for example ngram",
            )
        if self.model and self.open_draft is None:
            raise InputError(
                "there is no draft model",
                where="speculate",
                hint="compile the artifact with --draft, or give one with draft=",
            )

    @property
    def model(self) -> str:
        """The kind that needs an engine; empty where none does."""
        return next((kind for kind in self.kinds if kind in MODELS), "")

    def opened_draft(self) -> Executable | None:
        """The draft model's engine; None where none is needed."""
        return self.open_draft() if self.model and self.open_draft else None

    def measured(
        self, target: Executable, draft: Executable | None, *, reads: bool = True
    ) -> tuple[Costs, ...]:
        """Costs without and with the draft model, measured if need be: before the engines are
        used. Empty where nobody asks for them.

        Args:
            target: The engine that verifies.
            draft: The draft model's, if there is one.
            reads: It reads prompts: it does not draft on the target's keys and values.
        """
        if not self.kinds or self.count is not None:
            return ()
        alone = Costs(self.costs.of("target", target))
        if draft is None:
            return (alone, alone)
        of_draft = self.costs.of(self.model, draft)
        reading = self.costs.of(self.model, draft, reads=True) if reads else None
        return (alone, alone._replace(draft=of_draft, reading=reading))

    def speculator(
        self, target: Executable, model: ChainDrafter | None, costs: tuple[Costs, ...]
    ) -> Speculator | None:
        """The speculator that drafts in all the ways; None for none.

        Args:
            target: The engine that verifies.
            model: The draft model, if there is one.
            costs: As `measured` gave them.

        Raises:
            InputError: Medusa heads are wanted and the target has none.
        """
        sources = [
            self._medusa(target, costs) if kind == "medusa" else self._source(kind, model, costs)
            for kind in self.kinds
        ]
        return Speculator(sources) if sources else None

    @property
    def _most(self) -> int:
        """Most drafts of a request in a step."""
        return self.limit if self.count is None else self.count

    def _source(
        self, kind: str, model: ChainDrafter | None, costs: tuple[Costs, ...]
    ) -> DraftSource:
        if kind == "ngram":
            ngram = NGramProposer(self._most)
            return DraftSource(ngram, self._controller(costs[:1]), grades=ngram.grades)
        if kind == "lookahead":
            lookahead = LookaheadProposer()
            return DraftSource(lookahead, self._controller(costs[:1]), learner=lookahead)
        if kind in MODELS and model is not None:
            planner = ChainPlanner(self.limit, JointAcceptance())
            controller = self._controller(costs[1:], planner)
            note = model.note_step if isinstance(model, EagleModel) else None
            attach = model.attach if isinstance(model, SharedKVDraft) else None
            return DraftSource(
                model,
                controller,
                pending=model.pending,
                note_step=note,
                attach=attach,
                release=model.close,
            )
        raise ValueError(f"nothing drafts by {kind!r}")

    def _controller(self, costs: tuple[Costs, ...], planner: Planner | None = None) -> Controller:
        """One source's; together they may lose what one may."""
        if self.count is not None:
            return Fixed(self.count)
        share = SHARE / len(self.kinds)
        return BreakEven(costs[0], self.limit, planner=planner, share=share)

    def _medusa(self, target: Executable, costs: tuple[Costs, ...]) -> DraftSource:
        spec = target.spec
        if not (spec.accept_rates and spec.tree and isinstance(target, HeadedExecutable)):
            raise InputError(
                "the artifact has no Medusa heads",
                where="speculate",
                hint="compile it with --medusa FOLDER",
            )
        proposer = MedusaProposer(target, self._most)
        controller = self._controller(costs[:1], TreePlanner(proposer))
        return DraftSource(proposer, controller, learner=proposer, note_rows=proposer.note_rows)
