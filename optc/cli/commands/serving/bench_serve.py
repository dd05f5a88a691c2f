"""``optc bench-serve``: what clients of a server see under load."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from optc.cli.commands.serving.bench_tables import print_load
from optc.cli.commands.serving.keys import KEYS
from optc.cli.files.plotting import plot_option, write_plot
from optc.cli.output import json_option, print_json, print_warnings
from optc.cli.progress import progress_on_stderr
from optc.errors import InputError
from optc.system.needs import serve_packages

if TYPE_CHECKING:
    from optc.artifact.pages.components import Section
    from optc.proof.bench.online.load import Load
    from optc.proof.bench.online.server import Api, ServedModel
    from optc.proof.bench.slo import Slo

_POSITIVE = click.IntRange(min=1)
_BOUND = click.FloatRange(min=0, min_open=True)
#: Requests of a load that nothing else describes, and their lengths.
_LENGTHS = {"requests": 100, "prompt_tokens": "128", "output_tokens": "64"}
#: A closed loop is what one measures first.
_CLIENTS = 16


@dataclass(frozen=True)
class _Options:
    """Of the command."""

    model: str | None
    api: Api
    concurrency: int | None
    rate: float | None
    workload: str | None
    requests: int | None
    prompt_tokens: str | None
    output_tokens: str | None
    seed: int
    warmup: int | None
    timeout: float
    let_end: bool
    ttft_ms: float | None
    itl_ms: float | None
    tpot_ms: float | None
    e2e_ms: float | None
    price_per_hour: float | None

    @property
    def clients(self) -> int | None:
        """Of a closed loop; None is an open one."""
        if self.concurrency is None and self.rate is None and self.workload is None:
            return _CLIENTS
        return self.concurrency

    @property
    def spec(self) -> str:
        """The load, as of `optc.proof.bench.workload.read_workload`.

        Raises:
            InputError: Options exclude each other.
        """
        lengths = {name: getattr(self, name) for name in _LENGTHS}
        if self.workload is not None:
            given = [name for name, value in lengths.items() if value is not None]
            given += ["rate"] if self.rate is not None else []
            if given:
                flag = f"--{given[0].replace('_', '-')}"
                raise InputError("changes nothing with --workload", where=flag)
            return self.workload
        if self.rate is not None and self.concurrency is not None:
            hint = "--rate is an open loop, --concurrency a closed one"
            raise InputError("excludes --concurrency", where="--rate", hint=hint)
        chosen = {name: value or _LENGTHS[name] for name, value in lengths.items()}
        return (
            f"poisson:rate={self.rate or 1:g},requests={chosen['requests']},"
            f"prompt={chosen['prompt_tokens']},output={chosen['output_tokens']}"
        )

    @property
    def slo(self) -> Slo | None:
        """The objectives; None has none."""
        from optc.proof.bench.slo import Slo

        names = ("ttft", "tpot", "e2e", "itl")
        given = {name: getattr(self, f"{name}_ms") for name in names}
        bounds = {name: ms / 1e3 for name, ms in given.items() if ms is not None}
        return Slo(**bounds) if bounds else None


@click.command("bench-serve", short_help="Measure a server of OpenAI's API under load.")
@click.argument("url", metavar="URL")
@click.option(
    "--model", metavar="NAME", help="Name of the model [the first that the server lists]."
)
@click.option(
    "--api",
    type=click.Choice(["completions", "chat"]),
    default="completions",
    show_default=True,
    help="Route of the API to send requests to.",
)
@click.option(
    "--concurrency",
    type=_POSITIVE,
    metavar="N",
    help=f"Closed loop: N clients, each of which waits for its answer [{_CLIENTS}].",
)
@click.option(
    "--rate",
    type=click.FloatRange(min=0, min_open=True),
    metavar="R",
    help="Open loop: R requests a second, at random times (Poisson).",
)
@click.option(
    "--workload",
    metavar="SPEC",
    help="Open loop: arrivals and lengths as of optc bench, or the file of a recorded trace.",
)
@click.option("--requests", type=_POSITIVE, metavar="N", help="Number of requests [100].")
@click.option("--prompt-tokens", metavar="LENGTHS", help="Number of prompt tokens, about [128].")
@click.option(
    "--output-tokens", metavar="LENGTHS", help="Number of output tokens of each answer [64]."
)
@click.option("--seed", type=int, default=0, help="Seed of random times, lengths and words.")
@click.option(
    "--warmup",
    type=click.IntRange(min=0),
    help="Number of first requests that are not counted [a tenth].",
)
@click.option(
    "--timeout",
    type=_BOUND,
    default=600.0,
    show_default=True,
    metavar="SECONDS",
    help="Time after which an answer counts as failed.",
)
@click.option("--let-end", is_flag=True, help="Let answers end before --output-tokens.")
@click.option("--ttft-ms", type=_BOUND, metavar="MS", help="Objective: time to first token.")
@click.option("--itl-ms", type=_BOUND, metavar="MS", help="Objective: every gap between chunks.")
@click.option("--tpot-ms", type=_BOUND, metavar="MS", help="Objective: mean time per token.")
@click.option("--e2e-ms", type=_BOUND, metavar="MS", help="Objective: from request to end.")
@click.option(
    "--price-per-hour",
    type=click.FloatRange(min=0),
    help="Price of the machine per hour, for the cost of tokens.",
)
@plot_option
@json_option
def command(url: str, plot: Path | None, as_json: bool, **given: Any) -> None:
    """Send streamed requests to the server at URL, and measure what its clients see.

    Prompts are random words. The server may be any that speaks OpenAI's API. OPTC_API_KEY holds
    the key to send, if it wants one. Exit code 3 if every request fails, 4 if none of them meets
    the objectives (docs/bench.md).
    """
    with serve_packages():
        from optc.proof.bench.online.figures import NoAnswerError, failures_of, uncounted
        from optc.proof.bench.online.server import address
    from optc.proof.bench.slo import ObjectivesError, shortfall

    options = _Options(**given)
    warnings: list[str] = []
    server_url, spec = address(url), options.spec
    load, model, values = _measure(server_url, spec, options, warnings)
    found = values["workload"]
    values = {"url": server_url, "model": model.name, "api": options.api, **values}
    slo, failures = options.slo, failures_of(load.answers)
    warnings += uncounted(load.answers)
    if found["goodput"] is not None and found["goodput"]["share"] > 0:
        warnings += shortfall(found["goodput"]["share"])
    if len(failures) == len(load.answers):
        raise NoAnswerError(server_url, failures, {**values, "warnings": warnings})
    write_plot(plot, f"optc bench-serve {server_url}", values, _drawn)
    if not as_json:
        print_warnings(warnings)
        print_load(values)
    if slo is not None and not found["goodput"]["share"]:
        details = {**values, "warnings": warnings}
        raise ObjectivesError(slo, found, details, where="objectives")
    if as_json:
        print_json("bench-serve", values, warnings)


def _measure(
    url: str, spec: str, options: _Options, warnings: list[str]
) -> tuple[Load, ServedModel, dict[str, Any]]:
    from optc.proof.bench.online.figures import figures
    from optc.proof.bench.online.prompts import make_askings
    from optc.proof.bench.online.server import find_model
    from optc.proof.bench.workload import read_workload

    arrivals = read_workload(spec, options.seed)
    warmup = len(arrivals) // 10 if options.warmup is None else options.warmup
    if warmup >= len(arrivals):
        raise InputError(f"the load has {len(arrivals)} requests", where="--warmup")
    key = next(iter(os.environ.get(KEYS, "").split()), None)
    model = asyncio.run(find_model(url, options.model, key))
    askings, shortened = make_askings(
        arrivals,
        tokens_per_word=model.tokens_per_word or 1.0,
        max_context=model.max_context,
        seed=options.seed,
    )
    if shortened:
        context = f"{model.max_context} tokens"
        warnings.append(f"{shortened} of {len(askings)} requests were shortened to {context}")
    load = _run_load(url, model.name, key, options, askings, warmup)
    found = figures(load, slo=options.slo, price_per_hour=options.price_per_hour)
    described = {
        # Times of arrival mean nothing to clients that wait.
        "spec": spec if options.clients is None else spec.removeprefix("poisson:rate=1,"),
        "concurrency": options.clients,
        "seed": options.seed,
        "warmup": warmup,
        "tokens_per_word": model.tokens_per_word,
    }
    return load, model, {"workload": {**described, **found}}


def _run_load(
    url: str, model: str, key: str | None, options: _Options, askings: Any, warmup: int
) -> Load:
    import uvloop

    from optc.proof.bench.online.load import closed_loop, open_loop
    from optc.proof.bench.online.server import ServerUnderLoad

    server = ServerUnderLoad(url, model, options.api, key, options.timeout, not options.let_end)
    with progress_on_stderr() as progress:
        if options.clients is None:
            running = open_loop(server, askings, warmup=warmup, progress=progress)
        else:
            running = closed_loop(
                server, askings, options.clients, warmup=warmup, progress=progress
            )
        return uvloop.run(running)


def _drawn(values: Mapping[str, Any]) -> list[Section]:
    from optc.artifact.pages.bench_plots import bench_sections

    return bench_sections(values)
