"""``optc bench``: throughput and latencies of an artifact on this machine."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from optc.cli.commands.bench_tables import print_profile, print_results
from optc.cli.output import json_option, print_json, print_warnings, reserved_stdout
from optc.cli.progress import progress_on_stderr
from optc.errors import InputError, UnavailableError

if TYPE_CHECKING:
    from optc.artifact import Artifact
    from optc.bench.utilization import Instruments


@dataclass(frozen=True)
class _Options:
    prompt_tokens: int
    output_tokens: int
    concurrency: list[int]
    rounds: int | None
    threads: int | None
    kv_memory: str | None


@click.command("bench", short_help="Measure an artifact's speed on this machine.")
@click.argument("artifact", type=click.Path(path_type=Path))
@click.option("--prompt-tokens", type=click.IntRange(min=1), default=512, show_default=True)
@click.option("--output-tokens", type=click.IntRange(min=1), default=128, show_default=True)
@click.option("--concurrency", default="1,8,16", show_default=True, metavar="N,N,…")
@click.option("--rounds", type=click.IntRange(min=1), help="[3; with --profile 20].")
@click.option("--threads", type=click.IntRange(min=1), help="CPU threads [all usable].")
@click.option("--kv-memory", metavar="SIZE", help="Memory for keys and values, such as 2GiB.")
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
    profiled: bool,
    as_json: bool,
) -> None:
    """Measure prefill and decode of ARTIFACT with random prompts; medians over the rounds.

    MBU and MFU are shares of this machine's read bandwidth and arithmetic peak, measured in the
    same run. With --profile: where the time of one decode and one prefill step goes.
    """
    counts = _counts(concurrency)
    options = _Options(prompt_tokens, output_tokens, counts, rounds, threads, kv_memory)
    warnings: list[str] = []
    with reserved_stdout():
        measure = _profile if profiled else _bench
        values = measure(artifact, options, warnings)
    if as_json:
        print_json("bench", values, warnings)
        return
    print_warnings(warnings)
    (print_profile if profiled else print_results)(artifact.name, values)


def _bench(path: Path, options: _Options, warnings: list[str]) -> dict[str, Any]:
    from optc import load
    from optc.artifact import Artifact
    from optc.bench.throughput import ROUNDS, bench, fit, result_json

    rounds = options.rounds or ROUNDS
    with (
        load(
            path, kv_memory=options.kv_memory, threads=options.threads, prefix_cache=False
        ) as engine,
        progress_on_stderr() as progress,
    ):
        artifact = Artifact.open(path, "size")  # loading has verified it
        fitting, _ = fit(options.prompt_tokens, options.output_tokens, engine.max_context)
        if fitting < options.prompt_tokens:
            warnings.append(f"prompts have {fitting} tokens: more do not fit the context")
        instruments = _instruments(artifact, options.threads, warnings)
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
        "target": artifact.engine().target.name,
        "results": [result_json(result) for result in results],
        "rounds": rounds,
        "ceilings": _ceilings(instruments, warnings),
    }


def _profile(path: Path, options: _Options, warnings: list[str]) -> dict[str, Any]:
    from optc.artifact import Artifact
    from optc.bench.profile import ROUNDS, profile, shapes
    from optc.bench.utilization import measurable, open_instruments
    from optc.target import usable_threads

    artifact = Artifact.open(path)
    entry = artifact.engine()
    threads = options.threads or usable_threads()
    rounds = options.rounds or ROUNDS
    profiler = measurable(entry.backend).open_profiler(
        artifact.engine_folder(entry), entry.spec, entry.data, threads
    )
    try:
        instruments = open_instruments(artifact, threads)
        wanted = shapes(entry.spec, options.prompt_tokens, options.concurrency)
        if wanted[0].context < options.prompt_tokens:
            warnings.append(f"the context holds {wanted[0].context} tokens")
        with progress_on_stderr() as progress:
            steps = profile(profiler, entry.spec, instruments, wanted, rounds, progress)
    finally:
        profiler.close()
    return {
        "target": entry.target.name,
        "results": [],
        "rounds": rounds,
        "ceilings": _ceilings(instruments, warnings),
        "profile": steps,
    }


def _instruments(
    artifact: Artifact, threads: int | None, warnings: list[str]
) -> Instruments | None:
    """The instruments; without any, throughput alone is still worth measuring."""
    from optc.bench.utilization import open_instruments

    try:
        return open_instruments(artifact, threads)
    except UnavailableError as error:
        warnings.append(f"no MBU and MFU: {error.render()}")
        return None


def _ceilings(instruments: Instruments | None, warnings: list[str]) -> dict[str, Any] | None:
    from optc.bench.ceilings import ceilings_json, disturbances

    if instruments is None:
        return None
    warnings += disturbances(instruments.meter)
    return ceilings_json(instruments.meter)


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
