"""Searching the settings of a server: the best goodput in simulation.

Every setting is tried on the same workload. Coordinate search: from the engine's own limits, each
setting in turn is set to its best value with the others as they are, until none changes; settings
that have been tried are not simulated again.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from optc.errors import InputError
from optc.proof.bench.replay import Run
from optc.proof.bench.slo import ATTAINED, Slo
from optc.proof.bench.summary import summarize
from optc.proof.bench.workload import Job
from optc.proof.simulate.serve import simulate
from optc.proof.simulate.step_times import StepTimes
from optc.runtime.executable.executable import StepInterface
from optc.runtime.settings import ServeSettings
from optc.runtime.speculative.kinds import MAX_DRAFTED
from optc.system.progress import Progress, no_progress

#: Goodputs this close together are equal; then latencies decide.
_CLOSE = 0.005
_SWEEPS = 3
#: The largest rate is sought within so many doublings, to within this factor.
_OCTAVES, _RATE_STEP = 6, 1.03


@dataclass(frozen=True)
class Subject:
    """An artifact that may be served, by a name: its engine, and how long its steps take."""

    name: str
    spec: StepInterface
    times: StepTimes


@dataclass(frozen=True)
class Candidate:
    """A subject with settings, and the figures of its run (`optc.proof.bench.summary`)."""

    subject: str
    settings: ServeSettings
    figures: dict[str, Any]

    @property
    def goodput(self) -> float:
        """Share of the requests that meet the objectives."""
        return float(self.figures["goodput"]["share"])

    def better_than(self, other: Candidate) -> bool:
        """More goodput; if it is the same, a shorter p90 of the time to the last token."""
        if abs(self.goodput - other.goodput) > _CLOSE:
            return self.goodput > other.goodput
        return bool(self.figures["e2e_ms"]["p90"] < 0.99 * other.figures["e2e_ms"]["p90"])


@dataclass
class Tuner:
    """One search.

    Attributes:
        subjects: At least one; they are compared.
        jobs: The workload, in order of time.
        slo: What counts as good.
        warmup: First jobs that are not counted.
        acceptance: Of drafts; None does not try speculation.
        kv_memory: Bytes for keys and values; None chooses.
        progress: Told how many candidates have been tried.
        candidates: All that were tried, in order.
    """

    subjects: Sequence[Subject]
    jobs: Sequence[Job]
    slo: Slo
    warmup: int = 0
    acceptance: float | None = None
    kv_memory: int | None = None
    progress: Progress = no_progress
    candidates: list[Candidate] = field(default_factory=list)

    def search(self) -> Candidate:
        """The best candidate; `candidates` then holds all.

        Raises:
            InputError: No subject can serve the workload.
        """
        best: Candidate | None = None
        for subject in self.subjects:
            found = self._best_of(subject)
            best = found if best is None or found.better_than(best) else best
        if best is None:
            raise InputError("there is nothing to tune", where="tune")
        return best

    def _best_of(self, subject: Subject) -> Candidate:
        start = ServeSettings(
            token_budget=subject.spec.max_rows,
            max_sequences=min(subject.spec.max_sequences, subject.spec.max_logit_rows),
            kv_memory=self.kv_memory,
        )
        best = self._try(subject, start)
        for _ in range(_SWEEPS):
            before = best
            for changes in self._changes(subject.spec):
                for change in changes:
                    tried = self._try(subject, replace(best.settings, **change))
                    best = tried if tried.better_than(best) else best
            if best is before:
                break
        return best

    def _changes(self, spec: StepInterface) -> list[list[dict[str, Any]]]:
        """The possible values of each setting, the gentlest change first."""
        rows = [n for n in (1024, 512, 256, 128, 64, 32) if n <= spec.max_rows]
        most = min(spec.max_sequences, spec.max_logit_rows)
        chunks = [None, *(n for n in rows if n < spec.max_rows), 16]
        changes: list[list[dict[str, Any]]] = [
            [{"token_budget": n} for n in rows],
            [{"prefill_chunk": n} for n in chunks],
            [{"max_sequences": n} for n in (64, 32, 16, 8, 4, 2) if n <= most],
        ]
        if self.acceptance is not None:
            drafts = ({"speculate": "ngram", "max_drafted": n} for n in (2, 4, 8))
            changes.append([{"speculate": None, "max_drafted": MAX_DRAFTED}, *drafts])
        return changes

    def _expected(self) -> int:
        """Candidates of one sweep over all subjects; later sweeps meet few new ones."""
        return sum(1 + sum(map(len, self._changes(subject.spec))) for subject in self.subjects)

    def _try(self, subject: Subject, settings: ServeSettings) -> Candidate:
        for known in self.candidates:
            if known.subject == subject.name and known.settings == settings:
                return known
        tried = len(self.candidates)
        self.progress("candidates", tried, max(tried + 1, self._expected()))
        run = self.run(subject, settings)
        self.candidates.append(Candidate(subject.name, settings, summarize(run, slo=self.slo)))
        return self.candidates[-1]

    def max_rate(self, best: Candidate) -> float | None:
        """Requests a second up to which `ATTAINED` of the requests meet the objectives: arrivals
        come faster or slower by a factor, within 3 %; None if they do not at a 64th of the rate."""
        subject = next(s for s in self.subjects if s.name == best.subject)
        low, high = 2.0**-_OCTAVES, 2.0**_OCTAVES
        runs = 1 + math.ceil(math.log2(math.log(high / low) / math.log(_RATE_STEP)))
        self.progress("rates", 0, runs)
        if not self._attains(subject, best.settings, low):
            return None
        for run in range(1, runs):  # until both are within the step
            self.progress("rates", run, runs)
            middle = (low * high) ** 0.5
            if self._attains(subject, best.settings, middle):
                low = middle
            else:
                high = middle
        offered = best.figures["offered_per_s"]
        return None if offered is None else float(offered) * low

    def _attains(self, subject: Subject, settings: ServeSettings, factor: float) -> bool:
        run = self.run(subject, settings, factor)
        return float(summarize(run, slo=self.slo)["goodput"]["share"]) >= ATTAINED

    def run(self, subject: Subject, settings: ServeSettings, factor: float = 1.0) -> Run:
        """Simulate the workload with some settings, at ``factor`` times its rate."""
        jobs = [job._replace(arrival_s=job.arrival_s / factor) for job in self.jobs]
        return simulate(
            subject.spec,
            subject.times,
            jobs,
            settings,
            warmup=self.warmup,
            acceptance=self.acceptance or 0.0,
        )
