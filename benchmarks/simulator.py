"""Simulated against real serving: how far off are latencies and throughput?

    python -m benchmarks.simulator ARTIFACT... [--load 0.6] [--seconds 20] [--rounds 3]
        [--json FILE]

For each artifact and round: measures step times, replays workloads on the real engine and simulates
the same ones, with the engine's own limits and with a small token budget. One workload arrives at
``--load`` of the rate that the simulated engine can serve, the other at once. Prints medians over
the rounds of real and simulated figures, their ratio, and its mean distance from 1; beside it, how
far the real engine's rounds are from their own median, which no simulation can be below.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
from collections.abc import Sequence
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import optc
from optc.artifact import Artifact
from optc.bench.replay import replay, warm_up
from optc.bench.summary import summarize
from optc.bench.workload import Job, make_jobs, read_workload
from optc.simulate.artifact_times import artifact_step_times
from optc.simulate.serve import Settings, simulate
from optc.simulate.step_times import StepTimes

PROMPT, OUTPUT = "lognormal(160,0.6)", "lognormal(48,0.5)"
COMPARED = (
    *(f"{name}_ms.{p}" for name in ("ttft", "tpot", "e2e") for p in ("p50", "p90", "p99")),
    "output_tokens_per_s",
)


def compare(path: Path, load: float, seconds: float, rounds: int) -> list[dict[str, Any]]:
    """Medians over the rounds of an artifact's figures, for each workload and token budget."""
    artifact = Artifact.open(path)
    cases: list[tuple[str, Settings]] = []
    measured: list[list[Case]] = []
    for _ in range(rounds):
        times = artifact_step_times(artifact, again=True)
        cases = cases or cases_of(artifact, times, load, seconds)
        measured.append([serve(path, artifact, times, *case) for case in cases])
    found = []
    for (workload, settings), of_rounds in zip(cases, zip(*measured, strict=True), strict=True):
        figures = ratios(
            {name: statistics.median(r.real[name] for r in of_rounds) for name in COMPARED},
            {name: statistics.median(r.simulated[name] for r in of_rounds) for name in COMPARED},
        )
        medians = {name: values["real"] for name, values in figures.items()}
        apart = [mean_error(ratios(medians, one.real)) for one in of_rounds]
        found.append(
            {
                "artifact": path.name,
                "workload": workload,
                "token_budget": settings.token_budget,
                "rounds": rounds,
                "step_time_error": statistics.median(r.step_time_error for r in of_rounds),
                "mean_error": mean_error(figures),
                "real_from_its_median": statistics.mean(apart),
                "figures": figures,
            }
        )
    return found


class Case(NamedTuple):
    """Figures by name of one workload in one round, and the error of the step times."""

    real: dict[str, float]
    simulated: dict[str, float]
    step_time_error: float


def cases_of(
    artifact: Artifact, times: StepTimes, load: float, seconds: float
) -> list[tuple[str, Settings]]:
    """Workloads and settings: the same in all rounds."""
    spec = artifact.engine().spec
    most = min(spec.max_sequences, spec.max_logit_rows)
    full = Settings(spec.max_rows, most, prefix_cache=False)
    rate = load * capacity(artifact, times, full)
    lengths = f"prompt={PROMPT},output={OUTPUT}"
    steady = f"poisson:rate={rate:.3g},requests={max(20, int(rate * seconds))},{lengths}"
    at_once = f"poisson:rate=1e6,requests=40,{lengths}"
    return list(product((steady, at_once), (full, Settings(64, most, prefix_cache=False))))


def serve(
    path: Path, artifact: Artifact, times: StepTimes, workload: str, settings: Settings
) -> Case:
    """One workload on the real engine and on the simulated one."""
    jobs = jobs_of(artifact, workload)
    with optc.load(path, verify="size", **settings.load_options()) as engine:
        warm_up(engine)
        real = summarize(replay(engine, jobs, warmup=len(jobs) // 10))
    spec = artifact.engine().spec
    virtual = summarize(simulate(spec, times, jobs, settings, warmup=len(jobs) // 10))
    return Case(
        {name: pick(real, name) for name in COMPARED},
        {name: pick(virtual, name) for name in COMPARED},
        times.error,
    )


def capacity(artifact: Artifact, times: StepTimes, settings: Settings) -> float:
    """Requests a second that the simulated engine serves when all arrive at once."""
    jobs = jobs_of(artifact, f"poisson:rate=1e6,requests=100,prompt={PROMPT},output={OUTPUT}")
    run = simulate(artifact.engine().spec, times, jobs, settings)
    return float(summarize(run)["requests_per_s"])


def jobs_of(artifact: Artifact, workload: str) -> Sequence[Job]:
    """Random prompts, shortened to the context."""
    spec = artifact.engine().spec
    jobs, _ = make_jobs(read_workload(workload), spec.vocab_size, spec.max_context)
    return jobs


def ratios(real: dict[str, float], simulated: dict[str, float]) -> dict[str, dict[str, float]]:
    """Real and simulated figures, and simulated over real."""
    return {
        name: {
            "real": real[name],
            "simulated": simulated[name],
            "ratio": simulated[name] / real[name],
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
    parser.add_argument("--load", type=float, default=0.6)
    parser.add_argument("--seconds", type=float, default=20)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    found: list[dict[str, Any]] = []
    for path in options.artifacts:
        found += compare(path, options.load, options.seconds, options.rounds)
    for entry in found:
        print(
            f"{entry['artifact']}, {entry['workload']}, "
            f"token budget {entry['token_budget']}: mean error {entry['mean_error']:.3f}, "
            f"real rounds from their median {entry['real_from_its_median']:.3f}"
        )
        for name, values in entry["figures"].items():
            print(f"  {name:22}" + "".join(f"{k} {v:8.4g}  " for k, v in values.items()))
    if options.json:
        options.json.write_text(json.dumps(found, indent=2) + "\n")


if __name__ == "__main__":
    main()
