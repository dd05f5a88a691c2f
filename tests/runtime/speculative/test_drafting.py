"""What an engine drafts with: costs that are kept, refusals, and the sources of each kind."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from optc.errors import InputError
from optc.runtime.executable.executable import Executable
from optc.runtime.speculative import drafting as module
from optc.runtime.speculative.drafters.lookahead import LookaheadProposer
from optc.runtime.speculative.drafters.medusa import MedusaProposer, TreePlanner
from optc.runtime.speculative.drafters.ngram import NGramProposer
from optc.runtime.speculative.drafting import Drafting, MeasuredCosts
from optc.runtime.speculative.planning.break_even import BreakEven
from optc.runtime.speculative.planning.controller import Fixed
from optc.runtime.speculative.planning.costs_cache import CostsCache
from optc.runtime.speculative.planning.ledger import SHARE
from optc.runtime.speculative.planning.plan_drafts import Costs
from optc.runtime.speculative.planning.row_costs import RowCosts
from optc.runtime.speculative.speculator import DraftSource
from tests.runtime.speculative.drafters.test_draft_model import draft_model
from tests.runtime.speculative.drafters.test_medusa import HeadedToy
from tests.runtime.support.toy import ToyExecutable, toy_spec

TARGET, DRAFT = ToyExecutable(toy_spec()), ToyExecutable(toy_spec(vocab=9))
#: What measuring gives, by the engine's vocabulary.
MEASURED = {48: RowCosts((1, 2), (1.0, 1.5)), 9: RowCosts((1, 2), (0.1, 0.2))}


READING = RowCosts((1, 2), (0.1, 0.15))


class Kept:
    """A cache in memory."""

    def __init__(self, value: dict[str, Any] | None = None) -> None:
        self.value = value
        self.read_from: list[tuple[str, str, int]] = []
        self.written: list[tuple[str, str, int, dict[str, Any]]] = []

    def read(self, kind: str, digest: str, threads: int) -> dict[str, Any] | None:
        self.read_from.append((kind, digest, threads))
        return self.value

    def write(self, kind: str, digest: str, threads: int, value: dict[str, Any]) -> bool:
        self.written.append((kind, digest, threads, value))
        return True


@pytest.fixture
def measured(monkeypatch: pytest.MonkeyPatch) -> list[Executable]:
    """The engines that were measured."""
    engines: list[Executable] = []

    def measure(executable: Executable, *, reads: bool = False) -> RowCosts:
        engines.append(executable)
        if reads:
            return READING
        return MEASURED[executable.spec.vocab_size]

    monkeypatch.setattr(module, "measure_row_costs", measure)
    return engines


def costs_of(kept: Kept, threads: int = 3) -> MeasuredCosts:
    cache: CostsCache = kept  # type: ignore[assignment]
    return MeasuredCosts({"target": "d1"}, threads, cache)


def test_kept_costs_are_not_measured_again(measured: list[Executable]) -> None:
    kept = Kept({"rows": [1], "seconds": [7.0]})
    assert costs_of(kept).of("target", TARGET) == RowCosts((1,), (7.0,))
    assert kept.read_from == [("row-costs.v2.target", "d1", 3)]
    assert measured == kept.written == []


@pytest.mark.parametrize("value", [None, {"rows": [1], "seconds": ["no"]}])
def test_costs_that_are_missing_or_damaged_are_measured_and_kept(
    measured: list[Executable], value: dict[str, Any] | None
) -> None:
    kept = Kept(value)
    assert costs_of(kept).of("target", TARGET) == MEASURED[48]
    assert kept.written == [("row-costs.v2.target", "d1", 3, MEASURED[48].to_json())]
    assert measured == [TARGET]


def test_steps_that_read_are_kept_apart(measured: list[Executable]) -> None:
    kept = Kept()
    assert costs_of(kept).of("target", TARGET, reads=True) == READING
    assert kept.read_from == [("row-costs.v2.target.reading", "d1", 3)]
    assert kept.written == [("row-costs.v2.target.reading", "d1", 3, READING.to_json())]


def test_engines_without_a_digest_or_a_cache_are_measured_each_time(
    measured: list[Executable],
) -> None:
    kept = Kept({"rows": [1], "seconds": [7.0]})
    assert costs_of(kept).of("draft", DRAFT) == MEASURED[9]
    assert MeasuredCosts({"target": "d1"}).of("target", TARGET) == MEASURED[48]
    assert kept.read_from == kept.written == []
    assert MeasuredCosts().threads == 1


@pytest.mark.parametrize(
    ("drafting", "message"),
    [
        ({"count": 0}, "num_speculative_tokens: 0 drafts (at least 1)"),
        (
            {"count": 1},
            "num_speculative_tokens: 1 drafts are asked for, but nothing drafts "
            "(say with speculate= what drafts, for example ngram)",
        ),
        (
            {"kinds": ("ngram", "self")},
            "speculate: there is no draft model "
            "(compile the artifact with --draft, or give one with draft=)",
        ),
    ],
)
def test_refusals(drafting: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError) as caught:
        Drafting(**drafting)
    assert str(caught.value) == message


def test_a_draft_model_is_opened_only_where_a_kind_needs_one() -> None:
    assert Drafting(("ngram",), count=1, open_draft=lambda: DRAFT).opened_draft() is None
    drafting = Drafting(("ngram", "draft"), open_draft=lambda: DRAFT)
    assert drafting.model == "draft"
    assert drafting.opened_draft() is DRAFT
    assert Drafting().model == ""
    assert Drafting().opened_draft() is None


def test_costs_are_measured_where_somebody_asks_for_them(measured: list[Executable]) -> None:
    assert Drafting().measured(TARGET, None) == ()
    assert Drafting(("ngram",), count=2).measured(TARGET, None) == ()
    assert measured == []
    alone = Costs(MEASURED[48])
    assert Drafting(("ngram",)).measured(TARGET, None) == (alone, alone)
    drafting = Drafting(("self",), open_draft=lambda: DRAFT)
    assert drafting.measured(TARGET, DRAFT) == (
        alone,
        alone._replace(draft=MEASURED[9], reading=READING),
    )
    assert measured == [TARGET, TARGET, DRAFT, DRAFT]
    shared = drafting.measured(TARGET, DRAFT, reads=False)
    assert shared == (alone, alone._replace(draft=MEASURED[9]))
    assert measured[4:] == [TARGET, DRAFT], "what reads no prompt is not measured reading one"


def sources(drafting: Drafting, **options: Any) -> list[DraftSource]:
    alone = Costs(MEASURED[48])
    costs = () if drafting.count else (alone, alone._replace(draft=MEASURED[9]))
    given = {"target": TARGET, "model": None, "costs": costs, **options}
    speculator = drafting.speculator(**given)
    assert speculator is not None
    return list(speculator._sources)


def test_nothing_drafts_unless_it_is_asked_for() -> None:
    assert Drafting().speculator(TARGET, None, ()) is None


def test_a_fixed_number_of_drafts() -> None:
    first, second = sources(Drafting(("ngram", "lookahead"), count=3))
    assert first.controller == second.controller == Fixed(3)
    assert isinstance(first.proposer, NGramProposer)
    assert first.grades == first.proposer.grades
    assert first.learner is None
    assert isinstance(second.proposer, LookaheadProposer)
    assert second.learner is second.proposer


def controlled(source: DraftSource) -> BreakEven:
    assert isinstance(source.controller, BreakEven)
    return source.controller


def test_sources_share_what_may_be_lost_and_only_models_cost_a_draft_step() -> None:
    model = draft_model()
    drafting = Drafting(("ngram", "lookahead", "draft"), open_draft=lambda: DRAFT, limit=5)
    made = sources(drafting, model=model)
    assert [controlled(source)._ledger._share for source in made] == [SHARE / 3] * 3
    assert [controlled(source)._planner._limit for source in made] == [5, 5, 5]  # type: ignore[attr-defined]
    drafts = [controlled(source)._costs.draft for source in made]
    assert drafts == [None, None, MEASURED[9]]
    assert made[2].proposer is model
    assert made[2].pending == model.pending
    assert made[2].release == model.close


def test_a_kind_that_nobody_knows_is_an_error() -> None:
    drafting = Drafting(("draft",), open_draft=lambda: DRAFT)
    with pytest.raises(ValueError, match="nothing drafts by 'draft'"):
        drafting.speculator(TARGET, None, (Costs(MEASURED[48]),) * 2)


def headed(**options: Any) -> HeadedToy:
    toy = HeadedToy(toy_spec(tree=True))
    toy.spec = replace(toy.spec, **options)
    return toy


def test_medusa_heads_draft_trees() -> None:
    (source,) = sources(Drafting(("medusa",), limit=4), target=headed())
    assert isinstance(source.proposer, MedusaProposer)
    assert len(source.proposer.gains) == 4
    assert source.learner is source.proposer
    assert source.note_rows == source.proposer.note_rows
    controller = controlled(source)
    assert isinstance(controller._planner, TreePlanner)
    assert controller._costs.draft is None
    (source,) = sources(Drafting(("medusa",), limit=4, count=2), target=headed())
    assert isinstance(source.proposer, MedusaProposer)
    assert len(source.proposer.gains) == 2


@pytest.mark.parametrize("target", [headed(accept_rates=()), headed(tree=False), TARGET])
def test_a_target_without_heads_is_refused(target: Executable) -> None:
    with pytest.raises(InputError) as caught:
        sources(Drafting(("medusa",), count=2), target=target)
    assert str(caught.value) == (
        "speculate: the artifact has no Medusa heads (compile it with --medusa FOLDER)"
    )


def test_an_engine_that_only_claims_heads_is_refused() -> None:
    toy = ToyExecutable(replace(toy_spec(tree=True), accept_rates=((0.5,),)))
    with pytest.raises(InputError, match="has no Medusa heads"):
        sources(Drafting(("medusa",), count=2), target=toy)
