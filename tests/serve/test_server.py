"""A server as users start it: ``optc serve``, curl, the official clients, signals."""

from __future__ import annotations

import fcntl
import json
import shutil
import socket
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx2
import pytest

from tests.runtime.support.artifacts import write_artifact
from tests.serve.processes import PATIENCE_S, Server, serving
from tests.serve.toys import TEMPLATE

openai = pytest.importorskip("openai", reason="the client of OpenAI is not installed")

USER = {"role": "user", "content": "hi"}
SCHEMA = {"type": "object", "properties": {"a": {"enum": [1, 2]}}, "required": ["a"]}


@pytest.fixture(scope="module")
def artifact(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_artifact(tmp_path_factory.mktemp("a") / "toy", chat_template=TEMPLATE).path


@pytest.fixture(scope="module")
def server(artifact: Path) -> Iterator[Server]:
    with serving(artifact, OPTC_API_KEY="sk-test sk-other") as found:
        yield found


@pytest.fixture
def client(server: Server) -> Iterator[Any]:
    with openai.OpenAI(base_url=f"{server.url}/v1", api_key="sk-test", max_retries=0) as found:
        yield found


def test_curl_as_the_page_says(server: Server) -> None:
    curl = shutil.which("curl")
    if curl is None:
        pytest.skip("curl is not installed")
    body = json.dumps({"model": "toy", "messages": [USER], "max_tokens": 4})
    done = subprocess.run(
        [
            *(curl, "--silent", "--fail-with-body", f"{server.url}/v1/chat/completions"),
            *("-H", "Content-Type: application/json", "-H", "Authorization: Bearer sk-test"),
            *("-d", body),
        ],
        capture_output=True,
        text=True,
        check=True,
    )
    found = json.loads(done.stdout)
    assert found["choices"][0]["message"]["role"] == "assistant"
    assert found["usage"]["completion_tokens"] == 4


def test_models(client: Any) -> None:
    assert [one.id for one in client.models.list()] == ["toy"]
    assert client.models.retrieve("toy").id == "toy"


def test_streams_add_up_to_whole_answers(client: Any) -> None:
    asked = {"model": "toy", "max_tokens": 12, "seed": 4, "n": 2}
    whole = client.completions.create(prompt="hi", **asked)
    parts = ["", ""]
    for chunk in client.completions.create(prompt="hi", stream=True, **asked):
        parts[chunk.choices[0].index] += chunk.choices[0].text
    assert parts == [choice.text for choice in whole.choices]
    del asked["max_tokens"]  # who parses an answer wants a whole one
    asked["extra_body"] = {"structured_outputs": {"choice": ["yes, it is", "no", "perhaps"]}}
    chat = client.chat.completions.create(messages=[USER], **asked)
    with client.chat.completions.stream(messages=[USER], **asked) as stream:
        for _ in stream:
            pass
        final = stream.get_final_completion()
    assert [one.message.content for one in final.choices] == [
        one.message.content for one in chat.choices
    ]


def test_json_schema_and_logprobs(client: Any) -> None:
    form = {"type": "json_schema", "json_schema": {"name": "s", "schema": SCHEMA, "strict": True}}
    found = client.chat.completions.create(
        model="toy",
        messages=[USER],
        response_format=form,
        logprobs=True,
        top_logprobs=2,
        seed=1,
        max_tokens=60,
    )
    assert json.loads(found.choices[0].message.content)["a"] in (1, 2)
    assert found.usage.completion_tokens == len(found.choices[0].logprobs.content)


TOOL = {"type": "function", "function": {"name": "add", "parameters": SCHEMA}}


def test_tools_that_must_be_called(client: Any) -> None:
    asked = {
        "model": "toy",
        "messages": [USER],
        "tools": [TOOL],
        "seed": 1,
        "max_tokens": 90,
        "tool_choice": "required",
        "parallel_tool_calls": False,
    }
    (whole,) = client.chat.completions.create(**asked).choices
    (call,) = whole.message.tool_calls
    assert (whole.finish_reason, call.type, call.function.name) == ("tool_calls", "function", "add")
    assert json.loads(call.function.arguments)["a"] in (1, 2)
    with client.chat.completions.stream(**asked) as stream:
        for _ in stream:
            pass
        (folded,) = stream.get_final_completion().choices
    (same,) = folded.message.tool_calls
    assert same.function.arguments == call.function.arguments
    assert folded.finish_reason == "tool_calls"


def test_exceptions_of_the_client(server: Server, client: Any) -> None:
    create = client.chat.completions.create
    with pytest.raises(openai.BadRequestError) as wrong:
        create(model="toy", messages=[USER], temperature=-1)
    assert wrong.value.param == "temperature"
    with pytest.raises(openai.NotFoundError) as missing:
        create(model="other", messages=[USER])
    assert missing.value.code == "model_not_found"
    with (
        openai.OpenAI(base_url=f"{server.url}/v1", api_key="no", max_retries=0) as stranger,
        pytest.raises(openai.AuthenticationError),
    ):
        stranger.models.list()
    with pytest.raises(openai.NotFoundError, match="is not served"):
        client.moderations.create(model="toy", input="hi")
    with pytest.raises(openai.BadRequestError, match="writes texts"):
        client.embeddings.create(model="toy", input="hi")


def test_sigterm_lets_a_stream_end_and_turns_others_away(artifact: Path) -> None:
    with serving(artifact, step_s=0.05) as server:
        with openai.OpenAI(base_url=f"{server.url}/v1", api_key="-", max_retries=0) as client:
            asked = {"model": "toy", "prompt": "hi", "extra_body": {"ignore_eos": True}}
            stream = iter(client.completions.create(max_tokens=40, stream=True, **asked))
            next(stream)
            server.terminate()
            refused = None
            while refused is None:  # the signal is on its way
                try:
                    client.completions.create(max_tokens=1, **asked)
                except openai.InternalServerError as error:
                    refused = error
            assert (refused.status_code, refused.response.headers["retry-after"]) == (503, "1")
            *_, last = stream
            assert last.choices[0].finish_reason == "length"
        code, lines = server.ended()
    assert code == 0
    stream_line = next(line for line in lines if line.get("stream"))
    assert (stream_line["status"], stream_line["completion_tokens"]) == (200, 40)


def test_a_second_signal_ends_streams_with_an_error(artifact: Path) -> None:
    with serving(artifact, step_s=0.05) as server:
        with openai.OpenAI(base_url=f"{server.url}/v1", api_key="-", max_retries=0) as client:
            asked = {"model": "toy", "prompt": "hi", "extra_body": {"ignore_eos": True}}
            stream = iter(client.completions.create(max_tokens=120, stream=True, **asked))
            next(stream)
            server.terminate()
            while client._client.get(f"{server.url}/ready").status_code == 200:
                pass  # two signals at once are one
            server.terminate()
            with pytest.raises(openai.APIError, match="shutting down"):
                list(stream)
        code, _ = server.ended()
    assert code == 0


def test_warnings_are_on_stderr_without_being_asked_for(artifact: Path) -> None:
    with serving(artifact) as server, httpx2.Client(base_url=server.url) as http:
        body = {"prompt": "hi", "max_tokens": 1, "trace_me": True}
        for _ in range(2):
            assert http.post("/v1/completions", json=body).status_code == 200
        server.terminate()
        server.ended()
    text = "".join(server.lines)
    assert text.count("requests have a field 'trace_me', which is ignored") == 1
    assert "Traceback" not in text


def test_nobody_needs_to_read_the_lines(artifact: Path) -> None:
    with serving(artifact, reads=False) as server, httpx2.Client(base_url=server.url) as http:
        assert server.process.stdout is not None
        server.process.stdout.close()
        for _ in range(3):
            assert http.get("/v1/models").status_code == 200
        server.terminate()
        assert server.process.wait(PATIENCE_S) == 0
    text = "".join(server.lines)
    assert text.count("stdout takes no lines any more") == 1
    assert "Traceback" not in text


def test_a_pipe_that_nobody_reads_holds_nothing_up(artifact: Path) -> None:
    with serving(artifact, reads=False) as server, httpx2.Client(base_url=server.url) as http:
        assert server.process.stdout is not None
        size = fcntl.fcntl(server.process.stdout, fcntl.F_SETPIPE_SZ, 4096)
        for _ in range(size // 100):  # a line is longer
            assert http.get("/v1/models").status_code == 200
        server.terminate()
        assert server.process.wait(PATIENCE_S) == 0
    assert "Traceback" not in "".join(server.lines)


@pytest.mark.parametrize("options", [(), ("--generation-defaults", "false")])
def test_what_the_model_sets_holds_unless_it_is_turned_off(
    tmp_path: Path, options: tuple[str, ...]
) -> None:
    path = write_artifact(tmp_path / "toy", generation={"temperature": 0.0}).path
    with serving(path, *options) as server, httpx2.Client(base_url=server.url) as http:

        def text(**fields: Any) -> str:
            body = {"prompt": "hi", "max_tokens": 20, "ignore_eos": True, "seed": 1, **fields}
            found: str = http.post("/v1/completions", json=body).json()["choices"][0]["text"]
            return found

        assert (text() == text(temperature=0)) is not bool(options)
        assert (text() == text(temperature=1)) is bool(options)


def test_an_idle_server_ends_at_once(artifact: Path) -> None:
    with serving(artifact, "--no-access-log") as server:
        server.terminate()
        assert server.ended() == (0, [])


def test_a_client_that_leaves_cancels_its_request(artifact: Path) -> None:
    with serving(artifact, step_s=0.05) as server:
        with openai.OpenAI(base_url=f"{server.url}/v1", api_key="-", max_retries=0) as client:
            asked = {"model": "toy", "prompt": "hi", "max_tokens": 120}
            more = {"extra_body": {"ignore_eos": True}}
            stream = client.completions.create(stream=True, **asked, **more)
            next(iter(stream))
            stream.close()
            with pytest.raises(openai.APITimeoutError):
                client.completions.create(timeout=0.5, **asked, **more)
            left = 2
            while left:  # what is cancelled leaves the engine between two steps
                metrics = client.with_options(max_retries=0)._client.get(f"{server.url}/metrics")
                left = 2 - int(_value(metrics.text, 'finished_reason="cancelled"'))
        server.terminate()
        code, lines = server.ended()
    assert code == 0
    asked_for = [line for line in lines if line["path"] == "/v1/completions"]
    assert [line["status"] for line in asked_for] == [200, 499]
    assert asked_for[0]["completion_tokens"] < 120


def _value(text: str, label: str) -> float:
    found = [line for line in text.splitlines() if label in line]
    return float(found[0].rsplit(" ", 1)[1]) if found else 0.0


def test_a_silent_stream_sends_comments(artifact: Path) -> None:
    with serving(artifact, "--ping", "0.05", step_s=0.3) as server:
        host, port = server.url.removeprefix("http://").rsplit(":", 1)
        body = json.dumps({"prompt": "hi", "max_tokens": 3, "stream": True}).encode()
        head = (
            f"POST /v1/completions HTTP/1.1\r\nhost: {host}\r\nconnection: close\r\n"
            f"content-type: application/json\r\ncontent-length: {len(body)}\r\n\r\n"
        )
        with socket.create_connection((host, int(port)), PATIENCE_S) as connection:
            connection.sendall(head.encode() + body)
            answer = b"".join(iter(lambda: connection.recv(4096), b""))
    first_datum = answer.index(b"data: ")
    assert b": ping\n\n" in answer[:first_datum]
    assert answer.index(b"text/event-stream") < answer.index(b": ping")
    assert b"data: [DONE]" in answer


def test_another_sites_name_for_this_machine_is_refused(artifact: Path) -> None:
    with serving(artifact) as server, httpx2.Client(base_url=server.url) as http:
        assert http.get("/v1/models").status_code == 200
        assert http.get("/v1/models", headers={"host": "evil.example"}).status_code == 403


def test_a_port_that_is_taken(artifact: Path, server: Server) -> None:
    port = server.url.rsplit(":", 1)[1]
    with (
        pytest.raises(AssertionError, match=r"cannot listen at 127\.0\.0\.1, port"),
        serving(artifact, "--port", port),
    ):
        pass


def test_a_model_that_cannot_be_loaded_ends_the_server(artifact: Path, tmp_path: Path) -> None:
    broken = shutil.copytree(artifact, tmp_path / "broken")
    (broken / "tokenizer/tokenizer.json").write_text("{}")
    with (
        pytest.raises(AssertionError, match=r"error: .*tokenizer\.json"),
        serving(artifact, broken),
    ):
        pass


def test_more_requests_than_may_wait(artifact: Path) -> None:
    with (
        serving(artifact, "--max-waiting", 2, "--max-sequences", 1, step_s=0.05) as server,
        openai.OpenAI(base_url=f"{server.url}/v1", api_key="-", max_retries=0) as client,
    ):
        asked = {"model": "toy", "prompt": "hi", "extra_body": {"ignore_eos": True}}
        outcomes: list[Any] = []

        def ask() -> None:
            try:
                outcomes.append(client.completions.create(max_tokens=20, **asked))
            except openai.RateLimitError as error:
                outcomes.append(error)

        threads = [threading.Thread(target=ask) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(PATIENCE_S)
        refused = [one for one in outcomes if isinstance(one, openai.RateLimitError)]
        assert 0 < len(refused) < len(outcomes) == 8
        assert {one.response.headers["retry-after"] for one in refused} == {"1"}
        assert {one.code for one in refused} == {"rate_limit_exceeded"}
        # A client that asks again gets its answer.
        patient = client.with_options(max_retries=10)
        assert patient.completions.create(max_tokens=1, **asked).usage.completion_tokens == 1
