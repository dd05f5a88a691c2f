"""``optc serve``: an online API of artifacts."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from optc.cli.artifact_path import ARTIFACT
from optc.cli.commands.serving.keys import ADMIN_KEYS, KEYS, read_keys
from optc.cli.commands.serving.loading import loading
from optc.cli.commands.serving.sources import sources_of
from optc.cli.logs import note, show_warnings
from optc.cli.options import add_options, stated
from optc.cli.output import print_warnings, visible
from optc.errors import InputError
from optc.runtime.settings import ServeSettings
from optc.system.needs import serve_packages

if TYPE_CHECKING:
    from optc.serve.models import ModelTable

#: Settings of the engines that the command takes.
SERVED = (
    "engine",
    "threads",
    "kv_memory",
    "resident_memory",
    "token_budget",
    "max_sequences",
    "prefill_chunk",
    "block_size",
    "prefix_spill",
    "answer_cache",
    "kv_events",
    "sleep_after",
    "speculate",
    "draft",
    "num_speculative_tokens",
    "max_drafted",
    "generation_defaults",
)


@click.command("serve", short_help="Serve artifacts over HTTP, as OpenAI's clients speak it.")
@click.argument("artifacts", type=ARTIFACT, nargs=-1, required=True, metavar="ARTIFACT...")
@click.option("--host", default="127.0.0.1", show_default=True, help="Address to listen at.")
@click.option(
    "--port",
    type=click.IntRange(0, 65535),
    default=8000,
    show_default=True,
    metavar="N",
    help="Port to listen at; 0 is a free one.",
)
@click.option(
    "--model-name",
    multiple=True,
    metavar="NAME",
    help="Name of a model in requests, one for each artifact [its folder's name].",
)
@click.option(
    "--adapter",
    multiple=True,
    metavar="[MODEL:]NAME=FOLDER",
    help="LoRA adapter as PEFT saved it; requests name it as their model.",
)
@click.option(
    "--api-key-file",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="FILE",
    help=f"API keys, one a line, of which each request needs one; also those of {KEYS}.",
)
@click.option(
    "--admin-key-file",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="FILE",
    help=f"API keys of the admin routes, which are off without one; also those of {ADMIN_KEYS}.",
)
@click.option(
    "--admin-folder",
    type=click.Path(path_type=Path, file_okay=False, exists=True),
    metavar="FOLDER",
    help="Folder from which admin routes load artifacts and adapters [none].",
)
@click.option(
    "--state",
    type=click.Path(path_type=Path, file_okay=False),
    metavar="FOLDER",
    help="Folder for files and batches of the API [neither is served].",
)
@click.option(
    "--receipts",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="FILE",
    help="Append a line for each answer, from which optc replay computes it again.",
)
@click.option("--receipts-text", is_flag=True, help="Store the texts of answers in receipts, too.")
@click.option(
    "--semantic-cache",
    metavar="MODEL=COSINE",
    help="Semantic cache: reuse answers to questions at this cosine similarity in encoder MODEL.",
)
@click.option(
    "--cors-origin", multiple=True, metavar="ORIGIN", help="Origin that CORS allows; repeated."
)
@click.option(
    "--trusted-host",
    multiple=True,
    metavar="NAME",
    help="Host name that requests may use; repeated.",
)
@click.option(
    "--max-waiting",
    type=click.IntRange(min=1),
    default=256,
    show_default=True,
    metavar="N",
    help="Maximum number of queued requests of a model; further ones get 429.",
)
@click.option(
    "--max-new-tokens",
    type=click.IntRange(min=1),
    metavar="N",
    help="Maximum number of new tokens of a request [the context].",
)
@click.option(
    "--max-completions",
    type=click.IntRange(min=1),
    default=128,
    show_default=True,
    metavar="N",
    help="Maximum number of completions of a request, over all its prompts.",
)
@click.option(
    "--max-body",
    type=click.IntRange(min=1),
    default=4 << 20,
    show_default=True,
    metavar="BYTES",
    help="Maximum size of a request's body.",
)
@click.option(
    "--ping",
    type=click.FloatRange(min=0),
    default=5.0,
    show_default=True,
    metavar="SECONDS",
    help="Send a comment on streams that are silent for this long; 0 sends none.",
)
@click.option(
    "--chunk-interval",
    type=click.FloatRange(min=0),
    metavar="SECONDS",
    help="Chunks of a stream are at least so far apart; 0 sends each step's tokens. By default "
    "each step's, or what keeps their cost low: at most 0.02.",
)
@click.option(
    "--drain-timeout",
    type=click.FloatRange(min=0),
    default=60.0,
    show_default=True,
    metavar="SECONDS",
    help="Time that running requests have to end after SIGTERM.",
)
@click.option(
    "--ttft-ms",
    type=click.FloatRange(min=0, min_open=True),
    metavar="MS",
    help="Objective for goodput: time to first token.",
)
@click.option(
    "--itl-ms",
    type=click.FloatRange(min=0, min_open=True),
    metavar="MS",
    help="Objective for goodput: every gap between two tokens.",
)
@click.option(
    "--metrics-prefix",
    default="optc",
    show_default=True,
    metavar="NAME",
    help="Prefix of metric names; vllm suits its dashboards.",
)
@click.option(
    "--otel",
    is_flag=True,
    help="Send OpenTelemetry spans to OTEL_EXPORTER_OTLP_ENDPOINT.",
)
@click.option(
    "--ray",
    metavar="replicas=N[-M][,cpus=N][,gpus=N]",
    help="Compute by N replicas on Ray, each request where its prefix is; by up to M under load.",
)
@click.option("--no-access-log", is_flag=True, help="Write no line for each request.")
@add_options(ServeSettings, *SERVED)
def command(
    artifacts: tuple[Path, ...],
    model_name: tuple[str, ...],
    adapter: tuple[str, ...],
    max_waiting: int,
    **options: Any,
) -> None:
    """Serve each ARTIFACT over HTTP, as OpenAI's clients speak it.

    Requests choose one of several by "model". SIGTERM lets running requests end, then exits with
    code 0.
    """
    with serve_packages():
        from optc.serve.metrics import check_prefix
        from optc.serve.models import ModelTable
        from optc.serve.server import serve
        from optc.serve.settings import HTTPSettings, Limits
    check_prefix(options["metrics_prefix"])
    if options["receipts_text"] and options["receipts"] is None:
        raise InputError("changes nothing without --receipts FILE", where="--receipts-text")
    chosen = stated(options, SERVED)
    engines = ServeSettings(**chosen, max_waiting=max_waiting)
    limits = Limits(
        body_bytes=options["max_body"],
        completions=options["max_completions"],
        new_tokens=options["max_new_tokens"],
    )
    settings = HTTPSettings(
        host=options["host"],
        port=options["port"],
        keys=read_keys(options["api_key_file"]),
        admin_keys=_admin_keys(options),
        admin_folder=options["admin_folder"],
        origins=options["cors_origin"],
        hosts=options["trusted_host"],
        ping_s=options["ping"],
        pause_s=options["chunk_interval"],
        drain_s=options["drain_timeout"],
        ttft_s=_seconds(options["ttft_ms"]),
        itl_s=_seconds(options["itl_ms"]),
        access_log=not options["no_access_log"],
        metrics_prefix=options["metrics_prefix"],
        state=options["state"],
        traced=options["otel"],
        receipts=options["receipts"],
        receipts_text=options["receipts_text"],
        semantic=_semantic(options["semantic_cache"]),
        limits=limits,
    )
    if not settings.keys and not settings.is_loopback:
        text = f"everybody who reaches {settings.host} may ask: --api-key-file or {KEYS} sets keys"
        print_warnings([text])
    show_warnings()
    with loading(options["ray"], engines, settings) as load:
        sources = sources_of(artifacts, model_name, adapter, load)
        opener = None if options["ray"] else lambda path: load(path, {})
        table = ModelTable(sources, opener, max_waiting)
        serve(table, settings, lambda address: note(visible(_greeting(address, table))))


def _admin_keys(options: dict[str, Any]) -> tuple[str, ...]:
    """Keys of admin routes.

    Raises:
        InputError: One is a key of other requests, too, or they are missing.
    """
    found = read_keys(options["admin_key_file"], ADMIN_KEYS, "--admin-key-file")
    if set(found) & set(read_keys(options["api_key_file"])):
        raise InputError("a key of requests is a key of admin routes, too", where="optc serve")
    if options["admin_folder"] is not None and not found:
        hint = f"--admin-key-file or {ADMIN_KEYS} gives one"
        raise InputError("changes nothing without an admin key", where="--admin-folder", hint=hint)
    return found


def _semantic(text: str | None) -> tuple[str, float] | None:
    """An encoder, and the cosine from which on two questions are one.

    Raises:
        InputError: The text names none.
    """
    if text is None:
        return None
    name, _, number = text.rpartition("=")
    try:
        threshold = float(number)
    except ValueError:
        threshold = 0.0
    if not name or not 0 < threshold <= 1:
        hint = "such as minilm=0.98: the name of a served encoder, and a number above 0, up to 1"
        raise InputError(f"{text!r} is no MODEL=COSINE", where="--semantic-cache", hint=hint)
    return name, threshold


def _seconds(milliseconds: float | None) -> float | None:
    return None if milliseconds is None else milliseconds / 1e3


def _greeting(address: str, table: ModelTable) -> str:
    names = ", ".join(one.name for one in table.listed)
    return f"serving {names} at {address}/v1; status: {address}/"
