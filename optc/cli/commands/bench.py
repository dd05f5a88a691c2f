"""``optc bench``: throughput and latencies of an artifact on this machine."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

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
from optc.errors import InputError

if TYPE_CHECKING:
    from optc.bench.throughput import BenchResult

_NUMBERS = ("at once", "prefill tok/s", "decode tok/s", "TTFT ms p50", "TPOT ms p50", "p90", "p99")


@click.command("bench", short_help="Measure an artifact's speed on this machine.")
@click.argument("artifact", type=click.Path(path_type=Path))
@click.option("--prompt-tokens", type=click.IntRange(min=1), default=512, show_default=True)
@click.option("--output-tokens", type=click.IntRange(min=1), default=128, show_default=True)
@click.option("--concurrency", default="1,8,16", show_default=True, metavar="N,N,…")
@click.option("--rounds", type=click.IntRange(min=1), default=3, show_default=True)
@click.option("--threads", type=click.IntRange(min=1), help="CPU threads [all usable].")
@click.option("--kv-memory", metavar="SIZE", help="Memory for keys and values, such as 2GiB.")
@json_option
def command(
    artifact: Path,
    prompt_tokens: int,
    output_tokens: int,
    concurrency: str,
    rounds: int,
    threads: int | None,
    kv_memory: str | None,
    as_json: bool,
) -> None:
    """Measure prefill and decode of ARTIFACT with random prompts; medians over the rounds."""
    from optc import load
    from optc.artifact import read_manifest
    from optc.bench.throughput import bench, fit, result_json

    counts = _counts(concurrency)
    warnings = []
    with (
        reserved_stdout(),
        load(artifact, kv_memory=kv_memory, threads=threads) as engine,
        progress_on_stderr() as progress,
    ):
        fitting, _ = fit(prompt_tokens, output_tokens, engine.max_context)
        if fitting < prompt_tokens:
            warnings.append(f"prompts have {fitting} tokens: more do not fit the context")
        results = bench(
            engine,
            prompt_tokens=fitting,
            output_tokens=output_tokens,
            concurrency=counts,
            rounds=rounds,
            progress=progress,
        )
    target = read_manifest(artifact).engines[0].target.name
    if as_json:
        values = {"target": target, "results": [result_json(result) for result in results]}
        print_json("bench", values, warnings)
        return
    print_warnings(warnings)
    _print(artifact, results)


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


def _print(artifact: Path, results: list[BenchResult]) -> None:
    first = results[0]
    title = f"{artifact.name}: {first.prompt_tokens} prompt tokens, {first.output_tokens} new ones"
    rows = table(title, *_NUMBERS, numbers=_NUMBERS)
    for r in results:
        rates = (r.prefill_tokens_per_s, r.decode_tokens_per_s, r.ttft_ms["p50"])
        rows.add_row(
            str(r.concurrency), *(figure(value) for value in (*rates, *r.tpot_ms.values()))
        )
    show(rows)
