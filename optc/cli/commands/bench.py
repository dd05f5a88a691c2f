"""``optc bench``: throughput and latencies of an artifact on this machine."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource

from optc.cli.artifact_path import ARTIFACT
from optc.cli.chosen import chosen_json
from optc.cli.commands.bench_instruments import find_instruments, found_ceilings
from optc.cli.commands.bench_tables import LEAST_READ, print_profile, print_results
from optc.cli.commands.bench_workload import (
    Traffic,
    check_objectives,
    measure_workload,
    print_workload,
)
from optc.cli.files.plotting import plot_option, write_plot
from optc.cli.judged.bench import BenchJudge, judging_options
from optc.cli.options import add_options
from optc.cli.output import json_option, print_json, print_warnings, reserved_stdout
from optc.cli.progress import progress_on_stderr
from optc.errors import InputError
from optc.proof.bench.counts import parse_counts
from optc.proof.conditions.verdicts import check
from optc.runtime.settings import ServeSettings

if TYPE_CHECKING:
    from optc.artifact.artifact import Artifact
    from optc.artifact.pages.components import Section

#: Options that mean nothing without ``--workload``, with it, and with ``--profile``.
_OF_WORKLOADS = ("slo", "settings", "price_per_hour", "warmup", "seed")
_NOT_OF_WORKLOADS = ("prompt_tokens", "output_tokens", "concurrency", "rounds", "profiled")
#: Options of the engine, and numbers of a measurement without a workload.
_OF_ENGINES = ("engine", "threads", "kv_memory", "resident_memory")
_COUNTS = ("prompt_tokens", "output_tokens", "rounds")
_NOT_OF_PROFILES = ("output_tokens", "kv_memory", "resident_memory")


@dataclass(frozen=True)
class _Options:
    """Of a measurement without a workload; a prompt length that nobody ``asked`` for may shrink."""

    prompt_tokens: int
    asked: bool
    output_tokens: int
    concurrency: list[int]
    rounds: int | None
    threads: int | None
    kv_memory: str | None
    resident_memory: str | None
    engine: str | None


@click.command("bench", short_help="Measure an artifact's speed on this machine.")
@click.argument("artifact", type=ARTIFACT)
@click.option("--prompt-tokens", type=click.IntRange(min=1), default=512, show_default=True)
@click.option("--output-tokens", type=click.IntRange(min=1), default=128, show_default=True)
@click.option("--concurrency", default="1,8,16", show_default=True, metavar="N,N,…")
@click.option(
    "--rounds", type=click.IntRange(min=1), help="Number of rounds [3; with --profile 20]."
)
@add_options(ServeSettings, *_OF_ENGINES)
@click.option("--workload", metavar="SPEC", help="Workload to serve: Poisson arrivals or a trace.")
@click.option(
    "--slo", metavar="BOUNDS", help="Latency objectives for goodput: ttft=200ms,tpot=50ms."
)
@click.option(
    "--settings",
    type=click.Path(path_type=Path),
    help="File of settings that optc tune --json recommends.",
)
@click.option(
    "--price-per-hour",
    type=click.FloatRange(min=0),
    help="Price of the machine per hour, for the cost of tokens.",
)
@click.option(
    "--warmup",
    type=click.IntRange(min=0),
    help="Number of first requests that are not counted [a tenth].",
)
@click.option("--seed", type=int, default=0, help="Seed of a workload's random times and lengths.")
@click.option(
    "--inputs",
    multiple=True,
    type=click.Path(path_type=Path),
    metavar="FILE|DIR",
    help="Inputs of models that do not generate text, as of optc compile [some that "
    "ships, or noise]; repeated.",
)
@click.option("--profile", "profiled", is_flag=True, help="Time the kernels of a step instead.")
@judging_options
@plot_option
@json_option
@click.pass_context
def command(
    context: click.Context,
    /,
    artifact: Path,
    workload: str | None,
    profiled: bool,
    plot: Path | None,
    as_json: bool,
    **given: Any,
) -> None:
    """Measure prefill and decode of ARTIFACT with random prompts; medians over the rounds.

    Of models that do not generate text token by token: calls of so many rows, texts, images or
    sounds at once.

    MBU and MFU are shares of this machine's read bandwidth and arithmetic peak, measured in the
    same run. With --profile: where the time of one decode and one prefill step goes.

    With --workload: latencies, throughput and goodput of requests that arrive by themselves, as
    poisson:rate=4,requests=200,prompt=lognormal(256,0.6),output=lognormal(64,0.5) or as recorded
    in a file of JSON lines (docs/bench.md). Exit code 4 if not one of them meets --slo, or a
    condition of --require does not hold.
    """
    from optc.cli.inputs.calls import generates

    if not generates(artifact):
        from optc.cli.inputs.bench_calls import bench_calls

        bench_calls(context, artifact, given, as_json)
        return
    if given["inputs"]:
        raise InputError(
            "is for models that do not generate text", where="--inputs", hint="leave it out"
        )
    _refuse_ignored(context, workload is not None, profiled)
    judge = BenchJudge.of(given, workload=workload is not None, profiled=profiled)
    if workload is not None:
        wanted = {name: given[name] for name in (*_OF_WORKLOADS, *_OF_ENGINES)}
        _workload(artifact, Traffic(workload, **wanted), judge, plot, as_json)
        return
    options = _Options(
        concurrency=parse_counts(given["concurrency"]),
        asked=_is_given(context, "prompt_tokens"),
        **{name: given[name] for name in (*_COUNTS, *_OF_ENGINES)},
    )
    warnings: list[str] = []
    with reserved_stdout():
        measure = _profile if profiled else _bench
        values = measure(artifact, options, warnings)
    write_plot(plot, f"optc bench {artifact}", values, _drawn)
    verdicts = [] if profiled else judge.judge(values)
    judge.write(artifact.name, values, verdicts, warnings)
    if not as_json:
        print_warnings(warnings)
        (print_profile if profiled else print_results)(artifact.name, values)
        judge.show(values, verdicts)
    check(verdicts, {**values, "warnings": warnings})
    if as_json:
        print_json("bench", values, warnings)


def _drawn(values: Mapping[str, Any]) -> list[Section]:
    from optc.artifact.pages.bench_plots import bench_sections

    return bench_sections(values)


def _workload(
    artifact: Path, traffic: Traffic, judge: BenchJudge, plot: Path | None, as_json: bool
) -> None:
    warnings: list[str] = []
    with reserved_stdout():
        values = measure_workload(artifact, traffic, warnings)
    write_plot(plot, f"optc bench {artifact}", values, _drawn)
    verdicts = judge.judge(values)
    judge.write(artifact.name, values, verdicts, warnings)
    if not as_json:
        print_warnings(warnings)
        print_workload(artifact.name, values)
        judge.show(values, verdicts)
    check_objectives(traffic, values, warnings)
    check(verdicts, {**values, "warnings": warnings})
    if as_json:
        print_json("bench", values, warnings)


def _refuse_ignored(context: click.Context, workload: bool, profiled: bool) -> None:
    """Refuse options that would change nothing, so that nobody takes them for measured."""
    refused = {name: "needs --workload" for name in _OF_WORKLOADS if not workload}
    if workload:
        refused = dict.fromkeys(_NOT_OF_WORKLOADS, "changes nothing with --workload")
    elif profiled:
        refused |= dict.fromkeys(_NOT_OF_PROFILES, "changes nothing with --profile")
    flags = {parameter.name: parameter.opts[0] for parameter in context.command.params}
    for name, reason in refused.items():
        if _is_given(context, name):
            raise InputError(reason, where=flags[name], hint="optc bench --help")


def _is_given(context: click.Context, name: str) -> bool:
    """True if an option is on the command line."""
    return context.get_parameter_source(name) is ParameterSource.COMMANDLINE


def _check_room(options: _Options, room: int, context: int, warnings: list[str]) -> None:
    """A prompt longer than the ``room`` for it is refused if it was asked for; the default is not.

    Raises:
        InputError: It was asked for.
    """
    if room >= options.prompt_tokens:
        return
    if options.asked:
        raise InputError(
            f"{options.prompt_tokens} prompt tokens do not fit the context of {context} tokens",
            where="--prompt-tokens",
            hint=f"at most {room}",
        )
    warnings.append(f"prompts have {room} tokens: more do not fit the context")


def _bench(path: Path, options: _Options, warnings: list[str]) -> dict[str, Any]:
    from optc.artifact.artifact import Artifact
    from optc.proof.bench.result import result_json
    from optc.proof.bench.throughput import ROUNDS, bench, fit
    from optc.runtime.loader import load

    rounds = options.rounds or ROUNDS
    with (
        load(
            path,
            engine=options.engine,
            kv_memory=options.kv_memory,
            resident_memory=options.resident_memory,
            threads=options.threads,
            prefix_cache=False,
        ) as engine,
        progress_on_stderr() as progress,
    ):
        artifact = Artifact.open(path, "size")  # loading has verified it
        fitting, _ = fit(options.prompt_tokens, options.output_tokens, engine.max_context)
        _check_room(options, fitting, engine.max_context, warnings)
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
        ceilings = found_ceilings(instruments, warnings)
        read = any(result.disk_bytes_per_token >= LEAST_READ for result in results)
        if ceilings is not None and read:
            ceilings |= _disk(artifact, options.engine)
    return {
        **chosen_json(engine.info),
        "results": [result_json(result) for result in results],
        "rounds": rounds,
        "ceilings": ceilings,
    }


def _disk(artifact: Artifact, name: str | None) -> dict[str, dict[str, float]]:
    """The rate of the disk with the weights, if the engine may read them in its steps and the rate
    is known: others read only what their packages load."""
    from optc.backend import ResidentBackend
    from optc.proof.roofline.beyond_memory import disk_ceiling
    from optc.registry import backend

    entry = artifact.choose(name=name).entry
    if not isinstance(backend(entry.backend), ResidentBackend):
        return {}
    found = disk_ceiling(artifact.engine_folder(entry))
    if found is None:
        return {}
    return {"disk_gb_per_s": {"best": found.best / 1e9, "median": found.median / 1e9}}


def _profile(path: Path, options: _Options, warnings: list[str]) -> dict[str, Any]:
    from optc.artifact.artifact import Artifact
    from optc.proof.bench.profile import ROUNDS
    from optc.proof.bench.profiled import open_profile
    from optc.runtime.engine_info import EngineInfo

    rounds = options.rounds or ROUNDS
    with open_profile(Artifact.open(path), options.engine, options.threads) as opened:
        choice = opened.choice
        wanted = opened.shapes(options.prompt_tokens, options.concurrency)
        _check_room(options, wanted[0].context, choice.entry.spec.max_context, warnings)
        with progress_on_stderr() as progress:
            steps = opened.measure(wanted, rounds, progress)
    return {
        **chosen_json(EngineInfo.of(path, choice)),
        "results": [],
        "rounds": rounds,
        "ceilings": found_ceilings(opened.instruments, warnings),
        "profile": steps,
    }
