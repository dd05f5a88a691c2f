"""``optc bench-serve`` on a server of the toy, and its options."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("aiohttp", reason="the extra 'serve' is not installed")

from tests.cli.conftest import CHAT_TEMPLATE, Optc
from tests.cli.test_docs import DOCS, check, spelled
from tests.runtime.support.artifacts import write_artifact
from tests.serve.processes import Server, serving

SHORT = ("--prompt-tokens", "8", "--output-tokens", "4", "--requests", "10")


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    path = write_artifact(tmp_path_factory.mktemp("a") / "toy", chat_template=CHAT_TEMPLATE).path
    with serving(path, OPTC_API_KEY="sk-test") as found:
        yield found


@pytest.fixture(autouse=True)
def key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPTC_API_KEY", "sk-test")


@pytest.mark.parametrize("api", ["completions", "chat"])
def test_a_closed_loop(optc: Optc, server: Server, api: str, tmp_path: Path) -> None:
    plot = tmp_path / "p.svg"
    options = ("--concurrency", "2", "--api", api, "--plot", plot, "--json")
    values = optc("bench-serve", f"{server.url}/v1", *SHORT, *options).json
    assert (values["url"], values["model"], values["api"]) == (server.url, "toy", api)
    found = values["workload"]
    assert (found["requests"], found["failed"], found["errors"]) == (9, 0, [])
    assert (found["concurrency"], found["offered_per_s"]) == (2, None)
    assert found["output_tokens"] == 9 * 4
    assert found["tokens_per_word"] > 1  # a token a byte
    assert found["ttft_ms"]["p50"] > 0
    assert values["warnings"] == []
    assert "2 clients" in plot.read_text()


def test_an_open_loop_with_objectives(optc: Optc, server: Server) -> None:
    objectives = ("--ttft-ms", "60000", "--itl-ms", "60000", "--price-per-hour", "2")
    outcome = optc("bench-serve", server.url, *SHORT, "--rate", "200", *objectives)
    assert outcome.code == 0, outcome.err
    assert "poisson:rate=200,requests=10,prompt=8,output=4" in outcome.out
    assert "100 % of the requests within the objectives" in outcome.out
    assert "cost of a million tokens" in outcome.out


def test_a_recorded_trace(optc: Optc, server: Server, tmp_path: Path) -> None:
    trace = tmp_path / "t.jsonl"
    lines = [{"arrival_s": n / 100, "prompt": "ab", "output_tokens": n + 1} for n in range(4)]
    trace.write_text("\n".join(map(json.dumps, lines)))
    call = ("--workload", trace, "--warmup", "0", "--json")
    found = optc("bench-serve", server.url, *call).json["workload"]
    assert (found["requests"], found["output_tokens"]) == (4, 10)
    assert found["offered_per_s"] == pytest.approx(100)


def test_objectives_that_nobody_meets(optc: Optc, server: Server) -> None:
    outcome = optc("bench-serve", server.url, *SHORT, "--ttft-ms", "0.0001", "--json")
    assert outcome.code == 4
    assert outcome.json["error"]["kind"] == "objectives"
    assert outcome.json["workload"]["goodput"]["share"] == 0


def test_every_request_fails(optc: Optc, server: Server) -> None:
    long = ("--prompt-tokens", "8", "--output-tokens", "4", "--requests", "3")
    outcome = optc("bench-serve", server.url, *long, "--timeout", "0.00001", "--json")
    assert outcome.code == 3
    assert "all 3 requests failed; the first one: timeout" in outcome.json["error"]["message"]
    assert outcome.json["workload"]["errors"][0]["count"] == 3


def test_keys_of_the_page(optc: Optc, server: Server) -> None:
    values = optc("bench-serve", server.url, *SHORT, "--ttft-ms", "9999", "--json").json
    wrong = optc("bench-serve", server.url, *SHORT, "--timeout", "0.00001", "--json").json
    values["workload"]["errors"] = wrong["workload"]["errors"]
    check("bench-serve", [spelled(values)], (DOCS / "bench.md").read_text())


@pytest.mark.parametrize(
    ("options", "code", "message"),
    [
        (("--rate", "1", "--concurrency", "2"), 2, "--rate: excludes --concurrency"),
        (("--workload", "x", "--rate", "1"), 2, "--rate: changes nothing with --workload"),
        (("--workload", "x", "--output-tokens", "1"), 2, "--output-tokens: changes nothing"),
        (("--workload", "x"), 2, "'x' is neither a file nor poisson:"),
        (("--prompt-tokens", "many"), 2, "'many' is no distribution of lengths"),
        (("--requests", "3", "--warmup", "3"), 2, "the load has 3 requests"),
        (("--model", "other"), 2, "the server has no model 'other' (it has toy)"),
        (("--plot", "p.txt"), 2, "--plot"),
    ],
)
def test_wrong_options(
    optc: Optc, server: Server, options: tuple[str, ...], code: int, message: str
) -> None:
    outcome = optc("bench-serve", server.url, *options)
    assert outcome.code == code
    assert message in outcome.err


def test_a_wrong_key_and_no_server(
    optc: Optc, server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPTC_API_KEY", "other")
    assert "does not take this key" in optc("bench-serve", server.url).err
    outcome = optc("bench-serve", "http://127.0.0.1:1")
    assert outcome.code == 3
    assert "cannot be reached" in outcome.err
    assert "is no address of a server" in optc("bench-serve", "localhost").err


def test_without_its_packages(optc: Optc, monkeypatch: pytest.MonkeyPatch) -> None:
    import sys

    for name in [one for one in sys.modules if one.startswith("optc.proof.bench.online")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "aiohttp", None)
    outcome = optc("bench-serve", "http://127.0.0.1:1")
    assert outcome.code == 3
    assert "pip install 'optc[serve]'" in outcome.err


def test_variables_of_a_command_whose_name_begins_alike(
    optc: Optc, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPTC_BENCH_SERVE_JSON", "1")
    monkeypatch.setenv("OPTC_BENCH_JSN", "1")
    err = optc("bench", "no artifact").err
    assert "OPTC_BENCH_SERVE_JSON" not in err
    assert "OPTC_BENCH_JSN is no option" in err
    assert optc("bench-serve", "localhost").json["error"]["where"] == "URL"
