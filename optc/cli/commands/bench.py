"""``optc bench``: throughput and latencies of an artifact on this machine."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

from optc.cli.chosen import chosen_json, engine_option
from optc.cli.commands.bench_instruments import find_instruments, found_ceilings
from optc.cli.commands.bench_tables import print_profile, print_results
from optc.cli.commands.bench_workload import Traffic, measure_workload, print_workload
from optc.cli.output import json_option, print_json, print_warnings, reserved_stdout
from optc.cli.progress import progress_on_stderr
from optc.errors import InputError


@dataclass(frozen=True)
class _Options:
    prompt_tokens: int
    output_tokens: int
    concurrency: list[int]
    rounds: int | None
    threads: int | None
    kv_memory: str | None
    engine: str | None


@click.command("bench", short_help="Measure an artifact's speed on this machine.")
@click.argument("artifact", type=click.Path(path_type=Path))
@click.option("--prompt-tokens", type=click.IntRange(min=1), default=512, show_default=True)
@click.option("--output-tokens", type=click.IntRange(min=1), default=128, show_default=True)
@click.option("--concurrency", default="1,8,16", show_default=True, metavar="N,N,…")
@click.option("--rounds", type=click.IntRange(min=1), help="[3; with --profile 20].")
@click.option("--threads", type=click.IntRange(min=1), help="CPU threads [all usable].")
@click.option("--kv-memory", metavar="SIZE", help="Memory for keys and values, such as 2GiB.")
@engine_option
@click.option("--workload", metavar="SPEC", help="Replay Poisson arrivals or a trace instead.")
@click.option("--slo", metavar="BOUNDS", help="For the goodput: ttft=200ms,tpot=50ms.")
@click.option(
    "--settings",
    type=click.Path(path_type=Path),
    help="Load with what optc tune --json recommends.",
)
@click.option("--price-per-hour", type=click.FloatRange(min=0), help="For the cost of tokens.")
@click.option("--warmup", type=click.IntRange(min=0), help="Requests not counted [a tenth].")
@click.option("--seed", type=int, default=0, help="Of a workload's random times and lengths.")
@click.option("--profile", "profiled", is_flag=True, help="Time the kernels of a step instead.")
@json_option
def command(
    artifact: Path,
    prompt_tokens: int,
    output_tokens: int,
    concurrency: str,
    rounds: int | None,
    threads: int | None,
    kv_memory: str | None,
    engine: str | None,
    workload: str | None,
    slo: str | None,
    settings: Path | None,
    price_per_hour: float | None,
    warmup: int | None,
    seed: int,
    profiled: bool,
    as_json: bool,
) -> None:
    """Measure prefill and decode of ARTIFACT with random prompts; medians over the rounds.

    MBU and MFU are shares of this machine's read bandwidth and arithmetic peak, measured in the
    same run. With --profile: where the time of one decode and one prefill step goes.

    With --workload: latencies, throughput and goodput of requests that arrive by themselves, as
    poisson:rate=4,requests=200,prompt=lognormal(256,0.6),output=lognormal(64,0.5) or as recorded
    in a file of JSON lines (docs/performance.md).
    """
    if workload is not None:
        traffic = Traffic(
            workload, slo, price_per_hour, warmup, seed, threads, kv_memory, settings, engine
        )
        _workload(artifact, traffic, profiled, as_json)
        return
    _refuse_without_workload(
        slo=slo, settings=settings, price_per_hour=price_per_hour, warmup=warmup
    )
    counts = _counts(concurrency)
    options = _Options(prompt_tokens, output_tokens, counts, rounds, threads, kv_memory, engine)
    warnings: list[str] = []
    with reserved_stdout():
        measure = _profile if profiled else _bench
        values = measure(artifact, options, warnings)
    if as_json:
        print_json("bench", values, warnings)
        return
    print_warnings(warnings)
    (print_profile if profiled else print_results)(artifact.name, values)


def _workload(artifact: Path, traffic: Traffic, profiled: bool, as_json: bool) -> None:
    if profiled:
        raise InputError("measures something else", where="--profile", hint="leave out --workload")
    warnings: list[str] = []
    with reserved_stdout():
        values = measure_workload(artifact, traffic, warnings)
    if as_json:
        print_json("bench", values, warnings)
        return
    print_warnings(warnings)
    print_workload(artifact.name, values)


def _refuse_without_workload(**options: object) -> None:
    for name, value in options.items():
        if value is not None:
            flag = "--" + name.replace("_", "-")
            raise InputError("needs --workload", where=flag, hint="optc bench --help")


def _bench(path: Path, options: _Options, warnings: list[str]) -> dict[str, Any]:
    from optc import load
    from optc.artifact import Artifact
    from optc.bench.throughput import ROUNDS, bench, fit, result_json

    rounds = options.rounds or ROUNDS
    with (
        load(
            path,
            engine=options.engine,
            kv_memory=options.kv_memory,
            threads=options.threads,
            prefix_cache=False,
        ) as engine,
        progress_on_stderr() as progress,
    ):
        artifact = Artifact.open(path, "size")  # loading has verified it
        fitting, _ = fit(options.prompt_tokens, options.output_tokens, engine.max_context)
        if fitting < options.prompt_tokens:
            warnings.append(f"prompts have {fitting} tokens: more do not fit the context")
        instruments = find_instruments(artifact, options.threads, options.engine, warnings)
        results = bench(
            engine,
            prompt_tokens=fitting,
            output_tokens=options.output_tokens,
            concurrency=options.concurrency,
            rounds=rounds,
            instruments=instruments,
            progress=progress,
        )
    return {
        **chosen_json(engine.info),
        "results": [result_json(result) for result in results],
        "rounds": rounds,
        "ceilings": found_ceilings(instruments, warnings),
    }


def _profile(path: Path, options: _Options, warnings: list[str]) -> dict[str, Any]:
    from optc.artifact import Artifact
    from optc.bench.profile import ROUNDS, profile, shapes
    from optc.bench.utilization import measurable, open_instruments
    from optc.runtime.engine_info import EngineInfo
    from optc.target import usable_threads

    artifact = Artifact.open(path)
    choice = artifact.choose(name=options.engine)
    entry = choice.entry
    threads = options.threads or usable_threads()
    rounds = options.rounds or ROUNDS
    profiler = measurable(entry.backend).open_profiler(
        artifact.engine_folder(entry), entry.spec, entry.data, threads
    )
    try:
        instruments = open_instruments(artifact, threads, options.engine)
        wanted = shapes(entry.spec, options.prompt_tokens, options.concurrency)
        if wanted[0].context < options.prompt_tokens:
            warnings.append(f"the context holds {wanted[0].context} tokens")
        with progress_on_stderr() as progress:
            steps = profile(profiler, entry.spec, instruments, wanted, rounds, progress)
    finally:
        profiler.close()
    return {
        **chosen_json(EngineInfo.of(path, choice)),
        "results": [],
        "rounds": rounds,
        "ceilings": found_ceilings(instruments, warnings),
        "profile": steps,
    }


def _counts(text: str) -> list[int]:
    try:
        counts = [int(part) for part in text.split(",")]
    except ValueError:
        counts = [0]
    if min(counts) < 1:
        raise InputError(
            f"{text!r} is no list of counts", where="--concurrency", hint="for example 1,8,16"
        )
    return counts
