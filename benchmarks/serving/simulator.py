"""Simulated against real serving: how far off are latencies and throughput?

    python -m benchmarks.serving.simulator ARTIFACT... [--loads 0.3,0.6,0.85] [--seconds 3]
        [--rounds 6] [--json FILE]

Steps are measured alone once, and in service in every round, as are real workloads: one that
arrives at once, whose real completions a second (of the first round) are the capacity, and
arrivals at shares of that, at one of them with a small token budget as well; other requests in
every round. Then the same workloads are simulated with what all rounds of service gave. Prints
medians over the rounds of real and simulated figures and their ratio, and beside it

- how far the real engine's rounds are from their own median, which no simulation can be below;
- ``step_ratio``: the time that the model gives the very steps that the real engine took, over what
  they took: the error of step times, without queues that amplify it;
- ``at_speed``: the ratios where step times are divided by the round's step ratio, as though they
  had been measured during that very round: the error of all but the speed of steps.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple, cast

from optc import registry
from optc.artifact.artifact import Artifact
from optc.proof.bench.replay import replay, warm_up
from optc.proof.bench.summary import summarize
from optc.proof.bench.workload import Job, make_jobs, read_workload
from optc.proof.simulate.fit_service import fit_service
from optc.proof.simulate.measure import measure_step_times
from optc.proof.simulate.serve import simulate
from optc.proof.simulate.service import ServedStep, Service, Watched, follows
from optc.proof.simulate.service import serve as serve_mix
from optc.proof.simulate.step_times import StepTimes
from optc.runtime.engine import Engine
from optc.runtime.executable.executable import Executable, StepInterface
from optc.runtime.loader import artifact_tokenizer
from optc.runtime.settings import ServeSettings
from optc.system.hardware.target import usable_threads

LENGTHS = "prompt=lognormal(160,0.6),output=lognormal(48,0.5)"
AT_ONCE = f"poisson:rate=1e6,requests=40,{LENGTHS}"
SMALL_BUDGET = 64
COMPARED = (
    *(f"{name}_ms.{p}" for name in ("ttft", "tpot", "e2e") for p in ("p50", "p95")),
    "output_tokens_per_s",
)


class Case(NamedTuple):
    """A workload, its share of the capacity (0: all at once), and the settings."""

    workload: str
    load: float
    settings: ServeSettings


class Outcome(NamedTuple):
    """Figures by name of a case in one round; the others as above, the step
    ratio also of steps without and with prompts."""

    real: dict[str, float]
    simulated: dict[str, float]
    at_speed: dict[str, float]
    step_ratio: float
    decode_ratio: float
    prompt_ratio: float


class Served(NamedTuple):
    """The real engine's results for jobs: its figures, and its steps."""

    jobs: Sequence[Job]
    figures: dict[str, Any]
    steps: list[ServedStep]


def compare(path: Path, loads: list[float], seconds: float, rounds: int) -> list[dict[str, Any]]:
    """Medians over the rounds of an artifact's figures, for each case."""
    artifact = Artifact.open(path)
    spec = artifact.engine().spec
    most = min(spec.max_sequences, spec.max_logit_rows)
    full = ServeSettings(token_budget=spec.max_rows, max_sequences=most, prefix_cache=False)
    executable = opened(artifact)
    alone = measure_step_times(executable)
    executable.close()
    cases = [Case(AT_ONCE, 0.0, full)]
    service = Service()
    served: list[list[Served]] = []
    for number in range(rounds):
        service.add(serve_mix(lambda: opened(artifact), artifact_tokenizer(artifact)))
        found = [serve(artifact, cases[0], number)]
        if not number:
            cases += arriving(float(found[0].figures["requests_per_s"]), loads, seconds, full)
        served.append(found + [serve(artifact, case, number) for case in cases[1:]])
        print(f"round {number + 1} of {rounds}", file=sys.stderr, flush=True)
    times = fit_service(alone, service)
    return [
        summary(path, case, [outcome(spec, times, case, one) for one in of_rounds])
        for case, of_rounds in zip(cases, zip(*served, strict=True), strict=True)
    ]


def opened(artifact: Artifact) -> Executable:
    """The engine that suits this machine best."""
    entry = artifact.engine()
    folder = artifact.engine_folder(entry)
    return registry.step_backend(entry.backend).load(
        folder, entry.spec, entry.data, usable_threads()
    )


def arriving(
    capacity: float, loads: list[float], seconds: float, full: ServeSettings
) -> list[Case]:
    """Arrivals at shares of the capacity, and at the middle one with a small token budget."""
    cases = []
    for load in loads:
        rate = load * capacity
        workload = f"poisson:rate={rate:.3g},requests={max(20, int(rate * seconds))},{LENGTHS}"
        cases.append(Case(workload, load, full))
    middle = cases[len(cases) // 2]
    small = ServeSettings(
        token_budget=SMALL_BUDGET, max_sequences=full.max_sequences, prefix_cache=False
    )
    return [*cases, middle._replace(settings=small)]


def serve(artifact: Artifact, case: Case, seed: int) -> Served:
    """One case on the real engine."""
    jobs = jobs_of(artifact, case.workload, seed)
    watched: list[Watched] = []

    def watching() -> Executable:
        watched.append(Watched(opened(artifact)))
        return cast("Executable", watched[-1])

    tokenizer = artifact_tokenizer(artifact)
    with Engine(watching, case.settings, tokenizer=tokenizer) as engine:
        warm_up(engine)
        watched[0].steps.clear()
        figures = summarize(replay(engine, jobs, warmup=len(jobs) // 10))
    return Served(jobs, figures, watched[0].steps)


def outcome(spec: StepInterface, times: StepTimes, case: Case, served: Served) -> Outcome:
    """The same jobs simulated."""
    ratio = step_ratio(times, served.steps)
    simulated = [
        summarize(simulate(spec, each, served.jobs, case.settings, warmup=len(served.jobs) // 10))
        for each in (times, times.slower(1 / ratio))
    ]
    figures = [
        {name: pick(found, name) for name in COMPARED} for found in (served.figures, *simulated)
    ]
    decode, prompt = (step_ratio(times, served.steps, prompts) for prompts in (False, True))
    return Outcome(figures[0], figures[1], figures[2], ratio, decode, prompt)


def step_ratio(times: StepTimes, steps: Sequence[ServedStep], prompts: bool | None = None) -> float:
    """Modelled over real seconds of the steps, each up to the next one's begin; of those with or
    without ``prompts``, None for all."""
    modelled = real = 0.0
    for before, after in pairwise(steps):
        kind = any(new > 1 for new, _ in before.sequences)
        if follows(after) and prompts in (None, kind):
            modelled += times.step_s(before.sequences, before.logit_rows)
            real += after.began_s - before.began_s
    return modelled / real if real else 1.0


def jobs_of(artifact: Artifact, workload: str, seed: int) -> Sequence[Job]:
    """Random prompts, shortened to the context."""
    spec = artifact.engine().spec
    jobs, _ = make_jobs(read_workload(workload, seed), spec.vocab_size, spec.max_context)
    return jobs


def summary(path: Path, case: Case, rounds: list[Outcome]) -> dict[str, Any]:
    """Medians over the rounds of a case."""
    figures = ratios(
        {name: statistics.median(r.real[name] for r in rounds) for name in COMPARED},
        {name: statistics.median(r.simulated[name] for r in rounds) for name in COMPARED},
    )
    at_speed = {name: statistics.median(r.at_speed[name] for r in rounds) for name in COMPARED}
    for name, values in figures.items():
        values["at_speed"] = round(at_speed[name] / values["real"], 4)
    medians = {name: values["real"] for name, values in figures.items()}
    apart = [mean_error(ratios(medians, one.real)) for one in rounds]
    return {
        "artifact": path.name,
        "workload": case.workload,
        "load": case.load or "at once",
        "token_budget": case.settings.token_budget,
        "rounds": len(rounds),
        "step_ratio": round(statistics.median(r.step_ratio for r in rounds), 4),
        "step_ratios": [round(r.step_ratio, 3) for r in rounds],
        "step_ratio_decode": round(statistics.median(r.decode_ratio for r in rounds), 4),
        "step_ratio_prompt": round(statistics.median(r.prompt_ratio for r in rounds), 4),
        "mean_error": round(mean_error(figures), 4),
        "real_from_its_median": round(statistics.mean(apart), 4),
        "figures": figures,
    }


def ratios(real: dict[str, float], simulated: dict[str, float]) -> dict[str, dict[str, float]]:
    """Real and simulated figures, and simulated over real."""
    return {
        name: {
            "real": round(real[name], 3),
            "simulated": round(simulated[name], 3),
            "ratio": round(simulated[name] / real[name], 4),
        }
        for name in COMPARED
    }


def mean_error(figures: dict[str, dict[str, float]]) -> float:
    """Mean distance of the ratios from 1."""
    return sum(abs(values["ratio"] - 1) for values in figures.values()) / len(figures)


def pick(figures: dict[str, Any], name: str) -> float:
    """The figure with a dotted name."""
    value: Any = figures
    for key in name.split("."):
        value = value[key]
    return float(value)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("artifacts", nargs="+", type=Path)
    parser.add_argument("--loads", default="0.3,0.6,0.85")
    parser.add_argument("--seconds", type=float, default=3)
    parser.add_argument("--rounds", type=int, default=6)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    loads = [float(load) for load in options.loads.split(",")]
    found: list[dict[str, Any]] = []
    for path in options.artifacts:
        found += compare(path, loads, options.seconds, options.rounds)
    for entry in found:
        print(
            f"{entry['artifact']}, load {entry['load']}, token budget {entry['token_budget']}: "
            f"mean error {entry['mean_error']:.3f}, real rounds from their median "
            f"{entry['real_from_its_median']:.3f}, steps {entry['step_ratios']}, decode "
            f"{entry['step_ratio_decode']} prompt {entry['step_ratio_prompt']}"
        )
        for name, values in entry["figures"].items():
            print(f"  {name:22}" + "".join(f"{k} {v:8.4g}  " for k, v in values.items()))
    if options.json:
        options.json.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
