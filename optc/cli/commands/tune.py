"""``optc tune``: settings of a server for a workload and objectives, by simulation."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from optc.cli.artifact_path import ARTIFACT
from optc.cli.files.plotting import plot_option, write_plot
from optc.cli.options import add_options
from optc.cli.output import (
    figure,
    json_option,
    print_json,
    print_warnings,
    reserved_stdout,
    show,
    table,
)
from optc.cli.progress import progress_on_stderr
from optc.runtime.settings import ServeSettings
from optc.system.units import parse_memory

if TYPE_CHECKING:
    from optc.artifact.pages.components import Section
    from optc.proof.bench.slo import Slo
    from optc.proof.simulate.tune import Candidate, Subject, Tuner
    from optc.system.progress import Progress

#: Lengths of prompts and outputs, unless they are given.
_PROMPT, _OUTPUT = "lognormal(256,0.6)", "lognormal(64,0.5)"
#: Requests of a simulated workload, unless a trace gives them.
_REQUESTS = 300
#: Lines of the printed table.
_LINES = 12
_NUMBERS = ("budget", "chunk", "at once", "drafts", "good %", "TTFT p90", "TPOT p90", "tok/s")


@dataclass(frozen=True)
class _Asked:
    """The command's options."""

    slo: str
    rate: float | None
    prompt: str | None
    output: str | None
    trace: str | None
    acceptance: float | None
    kv_memory: str | None
    threads: int | None
    engine: str | None
    seed: int
    measure_again: bool


@click.command("tune", short_help="Find a server's settings for objectives, by simulation.")
@click.argument("artifacts", nargs=-1, required=True, type=ARTIFACT)
@click.option("--slo", required=True, metavar="BOUNDS", help="ttft=200ms,tpot=50ms")
@click.option(
    "--rate",
    type=click.FloatRange(min=0, min_open=True),
    help="Arrival rate, in requests per second.",
)
@click.option("--prompt", metavar="LENGTHS", help=f"Of prompts [{_PROMPT}].")
@click.option("--output", metavar="LENGTHS", help=f"Of outputs [{_OUTPUT}].")
@click.option("--trace", metavar="SPEC", help="Workload instead: a recorded trace or poisson:…")
@click.option(
    "--acceptance",
    type=click.FloatRange(min=0, max=1),
    help="Try speculation; the share of drafts that optc bench --workload saw accepted.",
)
@add_options(ServeSettings, "engine", "threads", "kv_memory")
@click.option("--seed", type=int, default=0, help="Seed of random times and lengths.")
@click.option("--measure-again", is_flag=True, help="Measure step times again.")
@plot_option
@json_option
def command(artifacts: tuple[Path, ...], plot: Path | None, as_json: bool, **options: Any) -> None:
    """Search token budget, prefill chunk, sequences at once and drafts of ARTIFACTS for the best
    goodput: the share of requests that meet the objectives.

    Step times are measured once for each artifact on this machine; then serving is simulated by
    the runtime's own scheduler. Several artifacts (of other weight or KV types) are compared;
    --engine names which engine of them is meant. Exit code 4 if no setting lets a single request
    meet the objectives; none is recommended then.
    """
    from optc.proof.bench.slo import ATTAINED, ObjectivesError, parse_slo, shortfall

    asked = _Asked(**options)
    bounds, spec = parse_slo(asked.slo), _workload(asked)
    warnings: list[str] = []
    tuner, best, max_rate = _search(artifacts, asked, bounds, spec, warnings)
    others = [candidate for candidate in tuner.candidates if candidate is not best]
    others.sort(key=lambda c: (-c.goodput, c.figures["e2e_ms"]["p90"]))
    ordered = [best, *others]
    met = best.goodput > 0
    warnings += shortfall(best.goodput) if met else []
    values = {
        "workload": spec,
        "slo": bounds.to_json(),
        "artifact": best.subject if met else None,
        "engine": _engine_name(Path(best.subject), asked.engine) if met else None,
        "settings": best.settings.differing() if met else None,
        "max_rate": {"requests_per_s": max_rate, "share": ATTAINED},
        "step_time_error": {subject.name: subject.times.error for subject in tuner.subjects},
        "candidates": [_candidate_json(candidate) for candidate in ordered],
    }
    write_plot(plot, f"optc tune {' '.join(map(str, artifacts))}", values, _drawn)
    if not as_json:
        print_warnings(warnings)
        _print(values, ordered)
    if not met:
        raise ObjectivesError(bounds, best.figures, {**values, "warnings": warnings})
    if as_json:
        print_json("tune", values, warnings)


def _drawn(values: Mapping[str, Any]) -> list[Section]:
    from optc.artifact.pages.bench_plots import tune_sections

    return tune_sections(values)


def _search(
    artifacts: Sequence[Path], asked: _Asked, bounds: Slo, spec: str, warnings: list[str]
) -> tuple[Tuner, Candidate, float | None]:
    """The search after its end, the best candidate, and the most requests a second with it."""
    from optc.proof.bench.workload import read_workload
    from optc.proof.simulate.tune import Tuner

    arrivals = read_workload(spec, asked.seed)
    memory = None if asked.kv_memory is None else parse_memory(asked.kv_memory, "--kv-memory")
    with reserved_stdout(), progress_on_stderr() as progress:
        subjects = [_subject(path, asked, progress) for path in artifacts]
        jobs = _jobs(arrivals, subjects, artifacts[0], asked.seed, warnings)
        tuner = Tuner(
            subjects,
            jobs,
            bounds,
            warmup=len(jobs) // 10,
            acceptance=asked.acceptance,
            kv_memory=memory,
            progress=progress,
        )
        best = tuner.search()
        max_rate = tuner.max_rate(best)
        progress("candidates", len(tuner.candidates), len(tuner.candidates))
    return tuner, best, max_rate


def _workload(asked: _Asked) -> str:
    from optc.errors import InputError

    rate, prompt, output, trace = asked.rate, asked.prompt, asked.output, asked.trace
    if (rate is None) == (trace is None):
        raise InputError("give either --rate or --trace", where="optc tune", hint="--rate 4")
    if trace is None:
        lengths = f"prompt={prompt or _PROMPT},output={output or _OUTPUT}"
        return f"poisson:rate={rate},requests={_REQUESTS},{lengths}"
    for option, given in (("--prompt", prompt), ("--output", output)):
        if given is not None:
            raise InputError("the trace states the lengths", where=option, hint="leave it out")
    return trace


def _engine_name(path: Path, engine: str | None) -> str:
    """The engine whose steps were measured."""
    from optc.artifact.artifact import Artifact

    return Artifact.open(path, "size").engine(engine).name


def _subject(path: Path, asked: _Asked, progress: Progress) -> Subject:
    from optc.artifact.artifact import Artifact
    from optc.proof.simulate.artifact_times import artifact_step_times
    from optc.proof.simulate.tune import Subject

    artifact = Artifact.open(path)
    engine, again = asked.engine, asked.measure_again
    times = artifact_step_times(
        artifact, asked.threads, engine=engine, again=again, progress=progress
    )
    return Subject(str(path), artifact.engine(engine).spec, times)


def _jobs(
    arrivals: Sequence[Any],
    subjects: Sequence[Subject],
    first: Path,
    seed: int,
    warnings: list[str],
) -> Sequence[Any]:
    """The workload as token ids, for the context that all subjects have."""
    from optc.artifact.artifact import Artifact
    from optc.proof.bench.workload import make_jobs
    from optc.runtime.loader import artifact_tokenizer

    tokenizer = None
    if any(arrival.text is not None for arrival in arrivals):
        tokenizer = artifact_tokenizer(Artifact.open(first, "size"))
    context = min(subject.spec.max_context for subject in subjects)
    vocab = min(subject.spec.vocab_size for subject in subjects)
    encode = None if tokenizer is None else tokenizer.encode
    jobs, shortened = make_jobs(arrivals, vocab, context, encode=encode, seed=seed)
    if shortened:
        warnings.append(
            f"{shortened} of {len(jobs)} requests were shortened to the context of {context} tokens"
        )
    return jobs


def _candidate_json(candidate: Candidate) -> dict[str, Any]:
    return {
        "artifact": candidate.subject,
        "settings": candidate.settings.differing(),
        "goodput": candidate.figures["goodput"],
        **{key: candidate.figures[key] for key in ("ttft_ms", "tpot_ms", "e2e_ms")},
        **{key: candidate.figures[key] for key in ("output_tokens_per_s", "kv_use", "busy")},
    }


def _print(values: Mapping[str, Any], ordered: Sequence[Candidate]) -> None:
    rows = table(values["workload"], "artifact", *_NUMBERS, numbers=_NUMBERS)
    rows.padding = (0, 1, 0, 0)
    rows.columns[0].no_wrap = True
    for candidate in ordered[:_LINES]:
        chosen, found = candidate.settings, candidate.figures
        rows.add_row(
            Path(candidate.subject).name,
            str(chosen.token_budget),
            str(chosen.prefill_chunk or "-"),
            str(chosen.max_sequences),
            str(chosen.max_drafted),
            figure(100 * candidate.goodput, 3),
            figure(found["ttft_ms"]["p90"], 3),
            figure(found["tpot_ms"]["p90"], 3),
            figure(found["output_tokens_per_s"], 4),
        )
    errors = ", ".join(figure(100 * e, 2) for e in values["step_time_error"].values())
    show(
        rows,
        f"{figure(values['max_rate']['requests_per_s'], 3)} requests a second with "
        f"{values['max_rate']['share']:.0%} of them within the objectives",
        f"of {len(ordered)} candidates; mean error of simulated step times {errors} %",
        *_call(values),
    )


def _call(values: Mapping[str, Any]) -> list[str]:
    """The call to make, where something is recommended."""
    if values["settings"] is None:
        return []
    wanted = {"engine": values["engine"], **values["settings"]}
    options = ", ".join(f"{key}={value!r}" for key, value in wanted.items())
    return [f"optc.load({values['artifact']!r}, {options})"]
