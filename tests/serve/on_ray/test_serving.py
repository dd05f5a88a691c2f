"""``optc serve --ray`` as users start it: replicas in processes of their own, one of which is
killed."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import httpx2
import pytest

import optc
from optc import registry
from optc.runtime.params import SamplingParams
from tests.runtime.support.artifacts import ToyBackend, write_artifact
from tests.runtime.support.toy import toy_spec
from tests.serve.processes import PATIENCE_S, ROOT, Server, serving
from tests.serve.toys import TEMPLATE

pytest.importorskip("ray.serve", reason="the extra 'ray' is not installed")
openai = pytest.importorskip("openai", reason="the client of OpenAI is not installed")

pytestmark = pytest.mark.long
SPEC = toy_spec((0,), vocab=259, max_context=256, max_sequences=8)
#: A machine that is very busy is too slow for Ray's own patience.
NOT_HERE = "Ray is not to be reached"
PROMPTS = [f"{group * 100}{number}" for number in range(6) for group in "abcd"]


@pytest.fixture(scope="module")
def artifact(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("a") / "toy"
    return write_artifact(folder, chat_template=TEMPLATE, spec=SPEC).path


@pytest.fixture
def alone(artifact: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[optc.Engine]:
    """One engine, which has all the cache."""
    toy = ToyBackend()
    monkeypatch.setattr(registry, "backend", lambda name: toy)
    with optc.load(artifact, block_size=8) as engine:
        yield engine


@pytest.fixture(scope="module")
def server(artifact: Path) -> Iterator[Server]:
    arguments = ("--ray", "replicas=2,cpus=1", "--block-size", "8", "--drain-timeout", "30")
    variables = {"PYTHONPATH": str(ROOT), "OPTC_API_KEY": "sk-test sk-other"}
    with ExitStack() as stack:
        try:
            found = stack.enter_context(serving(artifact, *arguments, step_s=0.02, **variables))
        except AssertionError as error:
            if NOT_HERE in str(error):
                pytest.skip("Ray does not start on this machine in the time that it gives itself")
            raise
        wait(lambda: httpx2.get(f"{found.url}/ready").status_code == 200)
        yield found


@pytest.fixture
def client(server: Server) -> Iterator[Any]:
    with openai.OpenAI(base_url=f"{server.url}/v1", api_key="sk-test", max_retries=0) as found:
        yield found


def wait(holds: Callable[[], bool]) -> None:
    """Wait for something that comes."""
    ends_s = time.monotonic() + PATIENCE_S
    while not holds():
        assert time.monotonic() < ends_s
        time.sleep(0.05)


def metric(server: Server, name: str) -> float:
    answer = httpx2.get(f"{server.url}/metrics", headers={"authorization": "Bearer sk-test"})
    found = re.findall(rf"^optc:{name}{{.*}} (\S+)$", answer.text, re.MULTILINE)
    return sum(map(float, found))


def pids(server: Server) -> list[int]:
    """Processes of replicas, of this server's Ray alone."""
    listed = subprocess.run(["ps", "-eo", "pid,ppid,args"], capture_output=True, text=True)
    rows = [line.split(None, 2) for line in listed.stdout.splitlines()[1:]]
    parents = {int(pid): int(parent) for pid, parent, _ in rows}

    def is_ours(pid: int) -> bool:
        while pid in parents and pid > 1:
            pid = parents[pid]
            if pid == server.process.pid:
                return True
        return False

    return [
        int(pid)
        for pid, _, args in rows
        if args.startswith("ray::ServeReplica") and is_ours(int(pid))
    ]


def test_the_tokens_and_the_hits_of_one_engine(
    server: Server, client: Any, alone: optc.Engine
) -> None:
    greedy = {"model": "toy", "max_tokens": 6, "temperature": 0}
    answers = [
        client.completions.create(prompt=one, extra_body={"return_token_ids": True}, **greedy)
        for one in PROMPTS
    ]
    params = SamplingParams(temperature=0, max_tokens=6)
    for prompt, answer in zip(PROMPTS, answers, strict=True):
        (output,) = alone.generate([prompt], params)
        assert tuple(answer.choices[0].token_ids) == output.token_ids
        assert answer.choices[0].text == output.text
    best = alone.metrics().prefix_hit_rate
    wait(lambda: metric(server, "request_success_total") == len(PROMPTS))
    looked_up = metric(server, "prefix_cache_queries_total")
    assert metric(server, "prefix_cache_hits_total") / looked_up >= 0.95 * best > 0.5


def test_seeds_and_streams(client: Any) -> None:
    asked = {"model": "toy", "prompt": "hi", "max_tokens": 12, "seed": 4, "n": 2}
    whole = client.completions.create(**asked)
    parts = ["", ""]
    for chunk in client.completions.create(stream=True, **asked):
        parts[chunk.choices[0].index] += chunk.choices[0].text
    assert parts == [choice.text for choice in whole.choices]


def test_a_client_that_leaves_frees_its_replica(server: Server, client: Any) -> None:
    stream = client.completions.create(model="toy", prompt="hi", max_tokens=200, stream=True)
    next(stream)
    wait(lambda: metric(server, "num_requests_running") == 1)
    stream.close()
    wait(lambda: metric(server, "num_requests_running") == 0)


def test_one_that_is_killed_fails_its_clients_alone(
    server: Server, client: Any, alone: optc.Engine
) -> None:
    results: dict[str, Any] = {}
    begun = threading.Barrier(5)

    def read(prompt: str) -> None:
        asked = {"model": "toy", "prompt": prompt, "max_tokens": 100, "temperature": 0}
        text = ""
        try:
            stream = client.completions.create(
                stream=True, extra_body={"ignore_eos": True}, **asked
            )
            for number, chunk in enumerate(stream):
                text += chunk.choices[0].text
                if number == 2:
                    begun.wait(PATIENCE_S)
            results[prompt] = text
        except openai.APIError as error:
            results[prompt] = error

    prompts = [letter * 20 for letter in "wxyz"]
    threads = [threading.Thread(target=read, args=(one,)) for one in prompts]
    for thread in threads:
        thread.start()
    begun.wait(PATIENCE_S)
    found = pids(server)
    assert len(found) == 2
    os.kill(found[0], signal.SIGKILL)
    for thread in threads:
        thread.join(PATIENCE_S)
    errors = [one for one in results.values() if isinstance(one, openai.APIError)]
    assert len(results) == 4
    assert len(errors) == 2
    assert {one.code for one in errors} == {"replica_lost"}
    assert "the replica that computed the answer is gone" in errors[0].message
    params = SamplingParams(temperature=0, max_tokens=100, ignore_eos=True)
    for prompt, text in results.items():
        if isinstance(text, str):
            assert text == alone.generate([prompt], params)[0].text
    for one in prompts:  # meanwhile the other one answers
        assert client.completions.create(model="toy", prompt=one, max_tokens=2).choices
    wait(lambda: len(pids(server)) == 2)


def test_sigterm_lets_a_stream_end(server: Server, client: Any) -> None:
    asked = {"model": "toy", "prompt": "hi", "max_tokens": 60, "temperature": 0}
    stream = client.completions.create(stream=True, extra_body={"ignore_eos": True}, **asked)
    next(stream)
    server.terminate()
    wait(lambda: httpx2.get(f"{server.url}/ready").status_code == 503)
    assert [chunk.choices[0].finish_reason for chunk in stream][-1] == "length"
    code, lines = server.ended()
    assert code == 0
    assert lines
    wait(lambda: not pids(server))


def test_replicas_that_do_not_start_say_why(artifact: Path) -> None:
    command = [sys.executable, "-m", "tests.support.children.serve_toy", "serve", str(artifact)]
    options = ["--port", "0", "--ray", "replicas=1,cpus=1", "--kv-memory", "1KiB"]
    done = subprocess.run(
        [*command, *options],
        capture_output=True,
        text=True,
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        timeout=2 * PATIENCE_S,
    )
    assert done.returncode == 3
    assert done.stdout == ""
    if NOT_HERE in done.stderr:
        pytest.skip("Ray does not start on this machine in the time that it gives itself")
    assert "ray: the replicas do not start: kv_memory: 1024 bytes hold no KV block" in done.stderr
