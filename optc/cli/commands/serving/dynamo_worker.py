"""``optc dynamo-worker``: an artifact behind NVIDIA Dynamo's frontend."""

from __future__ import annotations

import os
import signal
import socket
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import click

from optc.artifact.artifact import read_manifest
from optc.cli.artifact_path import ARTIFACT
from optc.cli.commands.serving.serve import SERVED
from optc.cli.commands.serving.sources import sources_of
from optc.cli.logs import show_warnings
from optc.cli.options import add_options, stated
from optc.runtime.settings import ServeSettings
from optc.system.needs import dynamo_packages, serve_packages

_SERVED = tuple(name for name in SERVED if name != "sleep_after")  # whose probes keep it awake


@click.command("dynamo-worker", short_help="Serve an artifact behind NVIDIA Dynamo's frontend.")
@click.argument("artifact", type=ARTIFACT, metavar="ARTIFACT")
@click.option(
    "--model-name", metavar="NAME", help="Name of the model in requests [its folder's name]."
)
@click.option(
    "--adapter",
    multiple=True,
    metavar="NAME=FOLDER",
    help="LoRA adapter as PEFT saved it; requests name it as their model.",
)
@click.option(
    "--namespace", default="dynamo", show_default=True, metavar="NAME", help="Namespace in Dynamo."
)
@click.option(
    "--component", default="backend", show_default=True, metavar="NAME", help="Component in Dynamo."
)
@click.option(
    "--endpoint", default="generate", show_default=True, metavar="NAME", help="Endpoint in Dynamo."
)
@click.option(
    "--discovery-backend",
    type=click.Choice(["etcd", "file", "mem", "kubernetes"]),
    help="Service discovery of workers and frontends [DYN_DISCOVERY_BACKEND, else etcd].",
)
@click.option(
    "--request-plane",
    type=click.Choice(["tcp", "nats"]),
    help="Transport of requests to the worker [DYN_REQUEST_PLANE, else tcp].",
)
@click.option(
    "--event-plane",
    type=click.Choice(["nats", "zmq"]),
    help="Transport of KV cache events to routers [DYN_EVENT_PLANE, else Dynamo's default].",
)
@click.option("--no-kv-routing", is_flag=True, help="Send routers no KV cache events.")
@click.option("--tool-call-parser", metavar="NAME", help="Parser of tool calls in Dynamo [none].")
@click.option("--reasoning-parser", metavar="NAME", help="Parser of reasoning in Dynamo [none].")
@add_options(ServeSettings, *_SERVED)
def command(artifact: Path, model_name: str | None, adapter: tuple[str, ...], **o: Any) -> None:
    """Serve ARTIFACT behind NVIDIA Dynamo's frontend, which speaks HTTP, encodes and routes.

    SIGTERM lets running requests end, as Dynamo's worker does it.
    """
    with serve_packages():
        from optc.runtime.load import load
    with dynamo_packages():
        import uvloop
        from dynamo.common.backend import WorkerConfig

        from optc.serve.on_dynamo.engine import DynamoEngine, Served, work
    text = read_manifest(artifact).tokenizer
    has_template = text is not None and bool(text.chat_template)
    settings = ServeSettings(**stated(o, _SERVED))
    events = None
    if not o["no_kv_routing"]:
        settings, events = _published(settings)
    (source,) = sources_of([artifact], [model_name] if model_name else [], adapter, _never)
    served = Served(
        partial(load, artifact, settings),
        source.name,
        {one.name: one.folder for one in source.adapters},
        events,
    )
    engine = DynamoEngine(served)
    show_warnings()
    config = WorkerConfig(
        namespace=o["namespace"],
        component=o["component"],
        endpoint=o["endpoint"],
        model_name=str(engine.folder),
        served_model_name=source.name,
        endpoint_types=",".join(["chat"] * has_template + ["completions"]),
        discovery_backend=_said(o, "discovery_backend", "etcd"),
        request_plane=_said(o, "request_plane", "tcp"),
        event_plane=_said(o, "event_plane"),
        enable_kv_routing=not o["no_kv_routing"],
        tool_call_parser=o["tool_call_parser"],
        reasoning_parser=o["reasoning_parser"],
    )
    for number in (signal.SIGTERM, signal.SIGINT):  # Dynamo's worker has its own below Python
        signal.signal(number, signal.SIG_DFL)
    uvloop.run(work(engine, config))


def _said(options: dict[str, Any], name: str, default: str | None = None) -> str | None:
    """An option, as stated here or by the variable that all of Dynamo obeys."""
    return options[name] or os.environ.get(f"DYN_{name.upper()}") or default


def _published(settings: ServeSettings) -> tuple[ServeSettings, str]:
    """Settings with an address of events, and that address as Dynamo's worker reaches it."""
    if settings.kv_events is None:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            settings = replace(settings, kv_events=f"tcp://127.0.0.1:{free.getsockname()[1]}")
    assert settings.kv_events is not None
    return settings, settings.kv_events.split(",")[0].replace("*", "127.0.0.1")


def _never(path: Path, adapters: object) -> Any:
    raise AssertionError("Dynamo's worker loads the engine itself")
