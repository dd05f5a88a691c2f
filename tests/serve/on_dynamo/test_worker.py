"""``optc dynamo-worker`` behind Dynamo's frontend, as users start both."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import httpx2
import pytest

import optc
from optc import registry
from optc.runtime.params import SamplingParams
from tests.runtime.support.artifacts import ToyBackend, write_artifact
from tests.serve.processes import PATIENCE_S, ROOT
from tests.serve.toys import TEMPLATE

pytest.importorskip("dynamo.common.backend", reason="ai-dynamo is not installed")


@contextmanager
def started(folder: Path, *module: str) -> Iterator[subprocess.Popen[bytes]]:
    """A process that finds others by files."""
    variables = {
        **os.environ,
        "DYN_DISCOVERY_BACKEND": "file",
        "DYN_FILE_KV": str(folder / "discovery"),
        "HF_HUB_OFFLINE": "1",
    }
    log = folder / f"{module[0]}.log"
    with log.open("wb") as file:
        process = subprocess.Popen(
            [sys.executable, "-m", *module], env=variables, cwd=ROOT, stdout=file, stderr=file
        )
    try:
        yield process
    finally:
        process.kill()
        process.wait()
        print(log.read_text(errors="replace")[-4000:])


def asked(url: str, path: str, **body: Any) -> tuple[int, dict[str, Any]]:
    answer = httpx2.post(f"{url}{path}", json={"model": "toy", **body}, timeout=PATIENCE_S)
    return answer.status_code, answer.json()


def wait_for_model(url: str) -> None:
    ends_s = time.monotonic() + PATIENCE_S
    while time.monotonic() < ends_s:
        with suppress(httpx2.TransportError):
            if httpx2.get(f"{url}/v1/models").json()["data"]:
                return
        time.sleep(0.1)
    raise AssertionError("no model is there")


def test_a_worker_answers_as_the_engine_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    artifact = write_artifact(tmp_path / "toy", chat_template=TEMPLATE).path
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    url = f"http://127.0.0.1:{port}"
    address = ("--http-host", "127.0.0.1", "--http-port", str(port), "--router-mode", "kv")
    worker = ("tests.support.children.serve_toy", "dynamo-worker", str(artifact))
    with (
        started(tmp_path, "dynamo.frontend", *address),
        started(tmp_path, *worker) as process,
    ):
        wait_for_model(url)
        status, answer = asked(url, "/v1/completions", prompt="hi", max_tokens=8, temperature=0)
        assert status == 200, answer
        monkeypatch.setattr(registry, "backend", lambda name: ToyBackend())
        with optc.load(artifact) as engine:
            (expected,) = engine.generate(["hi"], SamplingParams(max_tokens=8, temperature=0))
        assert answer["choices"][0]["text"] == expected.text
        assert answer["usage"]["prompt_tokens"] == expected.prompt_tokens
        messages = [{"role": "user", "content": "hi"}]
        status, answer = asked(url, "/v1/chat/completions", messages=messages, max_tokens=4)
        assert status == 200, answer
        assert answer["usage"]["completion_tokens"] <= 4
        status, answer = asked(url, "/v1/completions", prompt="hi", min_tokens=3)
        assert (status, "min_tokens is not supported" in json.dumps(answer)) == (400, True)
        process.send_signal(signal.SIGTERM)
        assert process.wait(PATIENCE_S) == 0
