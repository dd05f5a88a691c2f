"""The search finds what the simulated machine makes right."""

from __future__ import annotations

import pytest

from optc.errors import InputError
from optc.proof.bench.slo import Slo
from optc.proof.bench.summary import summarize
from optc.proof.bench.workload import make_jobs, read_workload
from optc.proof.simulate.tune import Candidate, Subject, Tuner
from optc.runtime.settings import ServeSettings
from tests.proof.simulate.fakes import step_times
from tests.runtime.support.toy import toy_spec

SPEC = toy_spec(max_context=512, max_rows=256, max_sequences=16, max_logit_rows=256)
#: A row takes 1 ms: a whole prompt at once holds the others up for 0.2 s.
TIMES = step_times(step=0.01, row=0.001)


def tuner(spec: str, slo: Slo, **options: object) -> Tuner:
    jobs, _ = make_jobs(read_workload(spec), 1000, 512)
    subjects = options.pop("subjects", [Subject("a", SPEC, TIMES)])
    return Tuner(subjects, jobs, slo, **options)  # type: ignore[arg-type]


def test_prompts_are_cut_where_tokens_may_not_wait() -> None:
    search = tuner("poisson:rate=1.5,requests=60,prompt=200,output=30", Slo(itl=0.05))
    best = search.search()
    start = search.candidates[0]
    assert start.settings == ServeSettings(token_budget=256, max_sequences=16)
    assert start.goodput < 0.9
    assert best.goodput > start.goodput + 0.05
    assert min(best.settings.token_budget, best.settings.prefill_chunk or 999) < 256
    assert best.goodput >= max(c.goodput for c in search.candidates) - 0.01


def test_nothing_is_cut_where_only_the_first_token_counts() -> None:
    best = tuner("poisson:rate=1.5,requests=60,prompt=200,output=4", Slo(ttft=0.35)).search()
    assert best.settings.token_budget == 256
    assert best.settings.prefill_chunk is None


def test_no_settings_are_simulated_twice() -> None:
    search = tuner("poisson:rate=1,requests=20,prompt=50,output=4", Slo(ttft=0.1))
    search.search()
    tried = [candidate.settings for candidate in search.candidates]
    assert len(tried) == len(set(tried))


@pytest.mark.parametrize(("acceptance", "drafts"), [(0.9, True), (0.01, False)])
def test_speculation_is_chosen_where_drafts_are_accepted(acceptance: float, drafts: bool) -> None:
    search = tuner(
        "poisson:rate=0.2,requests=8,prompt=20,output=60",
        Slo(tpot=0.008),
        acceptance=acceptance,
    )
    assert bool(search.search().settings.speculate) == drafts


def test_the_better_artifact_is_chosen() -> None:
    slow = Subject("slow", SPEC, step_times(step=0.05, row=0.001))
    search = tuner(
        "poisson:rate=1,requests=20,prompt=50,output=20",
        Slo(tpot=0.04),
        subjects=[slow, Subject("fast", SPEC, TIMES)],
    )
    assert search.search().subject == "fast"
    assert {candidate.subject for candidate in search.candidates} == {"slow", "fast"}
    with pytest.raises(InputError, match="there is nothing to tune"):
        tuner("poisson:rate=1,requests=2", Slo(), subjects=[]).search()


def test_the_largest_rate_is_where_the_objectives_begin_to_be_missed() -> None:
    spec = "poisson:rate=1,requests=200,prompt=1,output=10"
    # One at a time, each 0.1 s: an M/D/1 queue. The time in it has p90 0.3 s at about 7.8/s.
    alone = step_times(step=0.01)
    search = tuner(spec, Slo(e2e=0.3), subjects=[Subject("a", SPEC, alone)])
    one = search._try(search.subjects[0], ServeSettings(token_budget=256, max_sequences=1))
    rate = search.max_rate(one)
    assert rate is not None
    assert 5 < rate < 10
    below, above = (search.run(search.subjects[0], one.settings, f * rate) for f in (0.9, 1.15))
    shares = [summarize(run, slo=search.slo)["goodput"]["share"] for run in (below, above)]
    assert shares[0] >= 0.9 > shares[1]
    assert tuner(spec, Slo(e2e=0.05), subjects=search.subjects).max_rate(one) is None


def test_equal_goodput_is_decided_by_latency() -> None:
    def candidate(share: float, p90: float) -> Candidate:
        figures = {"goodput": {"share": share}, "e2e_ms": {"p90": p90}}
        return Candidate("a", ServeSettings(token_budget=64, max_sequences=8), figures)

    assert candidate(0.95, 100).better_than(candidate(0.9, 10))
    assert candidate(0.95, 10).better_than(candidate(0.95, 100))
    assert not candidate(0.95, 99.9).better_than(candidate(0.95, 100))


def test_progress_counts_to_what_is_expected() -> None:
    told: list[tuple[str, int, int]] = []
    search = tuner("poisson:rate=1,requests=20,prompt=50,output=4", Slo(ttft=0.1))
    search.progress = lambda *one: told.append(one)
    search.max_rate(search.search())
    candidates = [one for one in told if one[0] == "candidates"]
    assert [done for _, done, _ in candidates] == list(range(len(search.candidates)))
    assert candidates[0][2] > len(candidates) / 2
    assert all(total > done for _, done, total in candidates)
    rates = [one for one in told if one[0] == "rates"]
    assert rates == [("rates", done, rates[0][2]) for done in range(rates[0][2])]
