"""``optc bench --workload``: requests that arrive by themselves, open loop."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from optc.cli.chosen import chosen_json
from optc.cli.commands.bench_instruments import find_instruments, found_ceilings
from optc.cli.commands.bench_tables import ceilings_text
from optc.cli.output import figure, show, table
from optc.cli.progress import progress_on_stderr
from optc.errors import InputError
from optc.system.safe_json import parse_json

_LATENCIES = ("ttft", "tpot", "itl", "e2e", "queue")
_PERCENTILES = ("p50", "p90", "p95", "p99", "mean")


@dataclass(frozen=True)
class Traffic:
    """Options of ``--workload``.

    Attributes:
        spec: `optc.proof.bench.workload.read_workload`.
        slo: `optc.proof.bench.slo.parse_slo`; None measures no goodput.
        price_per_hour: None states no cost.
        warmup: First requests that are not counted; None is a tenth.
        seed: Of random times and lengths.
        threads: Of the engine.
        kv_memory: As of `optc.load`.
        resident_memory: As there.
        settings: JSON file of ``optc tune``; None loads with the defaults.
        engine: Its name; None is the one that suits this machine best.
    """

    spec: str
    slo: str | None
    price_per_hour: float | None
    warmup: int | None
    seed: int
    threads: int | None
    kv_memory: str | None
    resident_memory: str | None
    settings: Path | None
    engine: str | None = None


def measure_workload(path: Path, traffic: Traffic, warnings: list[str]) -> dict[str, Any]:
    """Load the artifact, replay the workload on it, and return the JSON object's values.

    Raises:
        OptcError: The artifact, the workload or an option is wrong; the latter two are found
            before anything is loaded.
    """
    from optc.artifact.artifact import Artifact
    from optc.proof.bench.replay import replay, warm_up
    from optc.proof.bench.slo import parse_slo, shortfall
    from optc.proof.bench.summary import summarize
    from optc.proof.bench.workload import make_jobs, read_workload
    from optc.proof.roofline.ceilings import sample
    from optc.runtime.loader import load

    slo = None if traffic.slo is None else parse_slo(traffic.slo)
    arrivals = read_workload(traffic.spec, traffic.seed)
    warmup = len(arrivals) // 10 if traffic.warmup is None else traffic.warmup
    if warmup >= len(arrivals):
        raise InputError(f"the workload has {len(arrivals)} requests", where="--warmup")
    options = _load_options(traffic)
    with (
        load(path, engine=traffic.engine, threads=traffic.threads, **options) as engine,
        progress_on_stderr() as progress,
    ):
        artifact = Artifact.open(path, "size")  # loading has verified it
        jobs, shortened = make_jobs(
            arrivals,
            engine.spec.vocab_size,
            engine.max_context,
            encode=engine.tokenizer.encode if engine.tokenizer else None,
            seed=traffic.seed,
        )
        if shortened:
            warnings.append(
                f"{shortened} of {len(jobs)} requests were shortened to the context of "
                f"{engine.max_context} tokens"
            )
        instruments = find_instruments(artifact, traffic.threads, traffic.engine, warnings)
        warm_up(engine)
        if instruments is not None:
            sample(instruments.meter)
        run = replay(engine, jobs, warmup=warmup, progress=progress)
        if instruments is not None:
            sample(instruments.meter)
    values = summarize(run, slo=slo, price_per_hour=traffic.price_per_hour, instruments=instruments)
    if values["goodput"] is not None and values["goodput"]["share"] > 0:
        warnings += shortfall(values["goodput"]["share"])
    return {
        **chosen_json(engine.info),
        "results": [],
        "rounds": 1,
        "ceilings": found_ceilings(instruments, warnings),
        "workload": {
            "spec": traffic.spec,
            "seed": traffic.seed,
            "warmup": warmup,
            "settings": options,
            **values,
        },
    }


def check_objectives(traffic: Traffic, values: Mapping[str, Any], warnings: list[str]) -> None:
    """Check that some request met the objectives, if there are any.

    Raises:
        ObjectivesError: None did; all figures are in its details.
    """
    from optc.proof.bench.slo import ObjectivesError, parse_slo

    found = values["workload"]
    if traffic.slo is not None and not found["goodput"]["share"]:
        details = {**values, "warnings": warnings}
        raise ObjectivesError(parse_slo(traffic.slo), found, details)


def _load_options(traffic: Traffic) -> dict[str, Any]:
    """Options of `optc.load` that `optc tune` recommends, and those of the command line."""
    options: dict[str, Any] = {}
    if traffic.settings is not None:
        try:
            found = parse_json(traffic.settings.read_bytes())
            options = dict(found["settings"])
        except OSError as error:
            raise InputError(
                f"cannot be read: {error.strerror}", where=str(traffic.settings)
            ) from error
        except (ValueError, KeyError, TypeError) as error:
            raise InputError(
                "is not what optc tune --json prints", where=str(traffic.settings)
            ) from error
        _check_options(options, traffic.settings)
    for name in ("kv_memory", "resident_memory"):
        if getattr(traffic, name) is not None:
            options[name] = getattr(traffic, name)
    return options


def _check_options(options: Mapping[str, Any], path: Path) -> None:
    from optc.runtime.settings import NAMES

    unknown = sorted(set(options) - set(NAMES))
    if unknown:
        raise InputError(
            f"{unknown[0]!r} is no setting",
            where=str(path),
            hint=f"one of {', '.join(NAMES)}",
        )


def print_workload(name: str, values: Mapping[str, Any]) -> None:
    """Latencies as a table, the other figures in lines below."""
    found = values["workload"]
    rows = table(f"{name}: {found['spec']}", "ms", *_PERCENTILES, numbers=_PERCENTILES)
    for latency in _LATENCIES:
        cells = (figure(found[f"{latency}_ms"][key]) for key in _PERCENTILES)
        rows.add_row(latency.upper() if latency != "queue" else latency, *cells)
    show(rows, *_lines(found))
    if values["ceilings"] is not None:
        show(ceilings_text(values["ceilings"]))


def _lines(found: Mapping[str, Any]) -> list[str]:
    lines = [
        f"{found['requests']} requests in {figure(found['seconds'])} s, {found['failed']} failed; "
        f"offered {figure(found['offered_per_s'], 3)}/s, served "
        f"{figure(found['requests_per_s'], 3)}/s",
        f"input {figure(found['input_tokens_per_s'])} tok/s, output "
        f"{figure(found['output_tokens_per_s'])} tok/s; prefix hits "
        f"{figure(found['prefix_hit_rate'], 3)}, KV use {figure(found['kv_use']['mean'], 3)} mean "
        f"{figure(found['kv_use']['peak'], 3)} peak, busy {figure(found['busy'], 3)}, "
        f"MBU {figure(found['mbu'], 3)}, MFU {figure(found['mfu'], 3)}",
    ]
    lines += goodput_lines(found["goodput"])
    if found["acceptance_rate"] is not None:
        lines.append(
            f"speculation: {figure(found['acceptance_rate'], 3)} of the drafts accepted, "
            f"{figure(found['tokens_per_pass'], 3)} tokens a pass"
        )
    return lines + cost_lines(found["cost"])


def goodput_lines(goodput: Mapping[str, Any] | None) -> list[str]:
    """A line about requests within their objectives, if there are objectives."""
    if goodput is None:
        return []
    return [
        f"goodput {figure(goodput['requests_per_s'], 3)}/s: "
        f"{figure(100 * goodput['share'], 3)} % of the requests within the objectives"
    ]


def cost_lines(cost: Mapping[str, Any] | None) -> list[str]:
    """A line about the cost of tokens, if a price is known."""
    if cost is None:
        return []
    return [
        f"cost of a million tokens: {figure(cost['per_million_output_tokens'])} counting "
        f"output, {figure(cost['per_million_tokens'])} counting input too"
    ]
