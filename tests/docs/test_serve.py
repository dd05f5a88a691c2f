"""docs/serve.md names every option, route, field and metric that there is, and no others."""

from __future__ import annotations

import re
from pathlib import Path

import click
import pytest

pytest.importorskip("starlette", reason="the extra 'serve' is not installed")

from optc.cli.commands.serving import replay
from optc.cli.commands.serving.serve import command
from optc.runtime.openai.names import REFUSED, SAMPLING
from optc.serve import metrics
from optc.serve.app import _ROUTES
from optc.serve.bodies.chat import ChatBody
from optc.serve.bodies.completion import CompletionBody
from optc.serve.routes.unsupported import REASONS

PAGE = (Path(__file__).parents[2] / "docs/serve.md").read_text(encoding="utf-8")


def section(title: str) -> str:
    return PAGE.partition(f"\n## {title}\n")[2].partition("\n## ")[0]


def test_options() -> None:
    named = set(re.findall(r"(?<![\w-])--[a-z][a-z-]+", PAGE))
    there, replays = (
        {flag for one in of.params if isinstance(one, click.Option) for flag in one.opts}
        for of in (command, replay.command)
    )
    of_replay = set(re.findall(r"(?<![\w-])--[a-z][a-z-]+", section("Receipts and replay")))
    assert named - (of_replay & replays - there) == there


def test_routes() -> None:
    named = set(re.findall(r"(?:POST|GET|DELETE) ?(/[\w./]*)|`(/[\w./]+)`", section("Routes")))
    found = {path for pair in named for path in pair if path}
    there = {re.sub(r"\{[\w:]+\}", "ID", route.path) for route in _ROUTES}
    assert found == there - REASONS.keys()


def test_fields() -> None:
    chats = section("Fields").partition("`/v1/responses` takes")[0]
    named = set(re.findall(r"`([a-z_]+)`", chats))
    known = {*CompletionBody.model_fields, *ChatBody.model_fields} - {"prompt", "messages", "user"}
    known |= {"extra_body", "json", "regex", "choice", "grammar"}
    assert {name for name in named if name not in REFUSED} == known
    assert {"temperature", "typical_p"} <= SAMPLING


def test_metrics() -> None:
    named = set(re.findall(r"`([a-z0-9_]+)`", section("Metrics")))
    there = {
        *metrics._GAUGES,
        *(name for name, _ in metrics._COUNTERS.values()),
        *(name for name, _ in metrics._HISTOGRAMS.values()),
        *metrics._OBJECTIVES,
        metrics.PUBLISHED[0],
        metrics.SLEEP[0],
        metrics.CALLS[0],
        metrics.WAITING[0],
        metrics.ADAPTERS[0],
    }
    assert there <= named
    labels = {"model_name", "engine", "finished_reason", "route", "method", "status"}
    labels |= {"sleep_state", "awake", "discard_all", *metrics.ADAPTERS[2]}
    more = {"request_success", "http_requests", "cache_config", "block_size", "num_gpu_blocks"}
    assert named - there == labels | more | {"_total"}
