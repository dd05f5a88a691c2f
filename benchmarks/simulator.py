"""Simulated against real serving: how far off are latencies and throughput?

    python -m benchmarks.simulator ARTIFACT... [--load 0.6] [--seconds 20] [--json FILE]

For each artifact: measures step times, replays workloads on the real engine and simulates the
same ones, with the engine's own limits and with a small token budget. One workload arrives at
``--load`` of the rate that the simulated engine can serve, the other at once. Prints real and
simulated figures, their ratio, and its mean distance from 1.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from itertools import product
from pathlib import Path
from typing import Any

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


def compare(path: Path, load: float, seconds: float) -> list[dict[str, Any]]:
    """Figures of one artifact for each workload and token budget."""
    artifact = Artifact.open(path)
    times = artifact_step_times(artifact, again=True)
    spec = artifact.engine().spec
    most = min(spec.max_sequences, spec.max_logit_rows)
    full = Settings(spec.max_rows, most, prefix_cache=False)
    rate = load * capacity(artifact, times, full)
    lengths = f"prompt={PROMPT},output={OUTPUT}"
    steady = f"poisson:rate={rate:.3g},requests={max(20, int(rate * seconds))},{lengths}"
    at_once = f"poisson:rate=1e6,requests=40,{lengths}"
    found = []
    for workload, settings in product(
        (steady, at_once), (full, Settings(64, most, prefix_cache=False))
    ):
        jobs = jobs_of(artifact, workload)
        with optc.load(path, verify="size", **settings.load_options()) as engine:
            warm_up(engine)
            real = summarize(replay(engine, jobs, warmup=len(jobs) // 10))
        virtual = summarize(simulate(spec, times, jobs, settings, warmup=len(jobs) // 10))
        found.append(
            {
                "artifact": path.name,
                "workload": workload,
                "token_budget": settings.token_budget,
                "step_time_error": times.error,
                "mean_error": mean_error(figures := ratios(real, virtual)),
                "figures": figures,
            }
        )
    return found


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


def ratios(real: dict[str, Any], virtual: dict[str, Any]) -> dict[str, dict[str, float]]:
    """Real and simulated figures, and simulated over real."""
    found = {}
    for name in COMPARED:
        pair = [pick(figures, name) for figures in (real, virtual)]
        found[name] = {"real": pair[0], "simulated": pair[1], "ratio": pair[1] / pair[0]}
    return found


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
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    found: list[dict[str, Any]] = []
    for path in options.artifacts:
        found += compare(path, options.load, options.seconds)
    for entry in found:
        print(
            f"{entry['artifact']}, {entry['workload']}, "
            f"token budget {entry['token_budget']}: mean error {entry['mean_error']:.3f}"
        )
        for name, values in entry["figures"].items():
            print(f"  {name:22}" + "".join(f"{k} {v:8.4g}  " for k, v in values.items()))
    if options.json:
        options.json.write_text(json.dumps(found, indent=2) + "\n")


if __name__ == "__main__":
    main()
