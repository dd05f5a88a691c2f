"""/v1/files and /v1/batches by the official client, on a server that is killed, too."""

from __future__ import annotations

import io
import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.runtime.support.artifacts import write_artifact
from tests.serve.processes import PATIENCE_S, Server, serving
from tests.serve.toys import TEMPLATE

openai = pytest.importorskip("openai", reason="the client of OpenAI is not installed")

URL = "/v1/completions"


@pytest.fixture(scope="module")
def artifact(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_artifact(tmp_path_factory.mktemp("a") / "toy", chat_template=TEMPLATE).path


@contextmanager
def client_of(
    artifact: Path, state: Path, *options: object, step_s: float = 0.0, key: str = "one"
) -> Iterator[tuple[Server, Any]]:
    keys = {"OPTC_API_KEY": "one two"}
    with (
        serving(artifact, "--state", state, *options, step_s=step_s, **keys) as server,
        openai.OpenAI(base_url=f"{server.url}/v1", api_key=key, max_retries=0) as client,
    ):
        yield server, client


def line(number: int, **body: Any) -> dict[str, Any]:
    asked = {"prompt": f"number {number}", "seed": number, "max_tokens": 8, "ignore_eos": True}
    return {"custom_id": f"c{number}", "method": "POST", "url": URL, "body": {**asked, **body}}


def sent(client: Any, lines: list[dict[str, Any]]) -> Any:
    text = "".join(f"{json.dumps(one)}\n" for one in lines)
    return client.files.create(file=("in.jsonl", io.BytesIO(text.encode())), purpose="batch")


def begun(client: Any, lines: list[dict[str, Any]]) -> Any:
    file = sent(client, lines)
    return client.batches.create(
        input_file_id=file.id, endpoint=URL, completion_window="24h", metadata={"k": "v"}
    )


def ended(client: Any, batch: Any) -> Any:
    until = time.monotonic() + PATIENCE_S
    while time.monotonic() < until:
        found = client.batches.retrieve(batch.id)
        if found.status in ("completed", "failed", "cancelled", "expired"):
            return found
        time.sleep(0.02)
    raise AssertionError(f"the batch is {found.status}")


def answers(client: Any, file: str | None) -> dict[str, dict[str, Any]]:
    if file is None:
        return {}
    found = [json.loads(one) for one in client.files.content(file).text.splitlines()]
    assert len({one["custom_id"] for one in found}) == len(found)
    return {one["custom_id"]: one["response"] for one in found}


def test_a_file_is_answered_as_its_lines_are(artifact: Path, tmp_path: Path) -> None:
    lines = [line(n) for n in range(40)] + [line(40, temperature=-1), line(41, model="other")]
    with client_of(artifact, tmp_path / "s") as (server, client):
        batch = ended(client, begun(client, lines))
        assert batch.status == "completed"
        assert batch.metadata == {"k": "v"}
        counts = batch.request_counts
        assert (counts.total, counts.completed, counts.failed) == (42, 40, 2)
        whole = answers(client, batch.output_file_id)
        for number in range(40):
            body = line(number)["body"]
            alone = client.completions.create(model="toy", **_known(body)).choices[0].text
            assert whole[f"c{number}"]["status_code"] == 200
            assert whole[f"c{number}"]["body"]["choices"][0]["text"] == alone
        failed = answers(client, batch.error_file_id)
        assert {name: one["status_code"] for name, one in failed.items()} == {
            "c40": 400,
            "c41": 404,
        }
        listed = [one.id for one in client.batches.list()]
        assert listed == [batch.id]
        assert {one.purpose for one in client.files.list()} == {"batch", "batch_output"}
        with openai.OpenAI(base_url=f"{server.url}/v1", api_key="two", max_retries=0) as other:
            assert list(other.batches.list()) == list(other.files.list()) == []
            with pytest.raises(openai.NotFoundError):
                other.files.content(batch.output_file_id)
            with pytest.raises(openai.NotFoundError):
                other.batches.cancel(batch.id)
        client.files.delete(batch.output_file_id)
        with pytest.raises(openai.NotFoundError):
            client.files.retrieve(batch.output_file_id)


def _known(body: dict[str, Any]) -> dict[str, Any]:
    own = {"ignore_eos": body["ignore_eos"]}
    return {k: v for k, v in body.items() if k not in own} | {"extra_body": own}


def test_a_killed_server_goes_on_where_it_was(artifact: Path, tmp_path: Path) -> None:
    lines = [line(n, n=1 + n % 2) for n in range(120)]
    with client_of(artifact, tmp_path / "s", step_s=0.03) as (server, client):
        batch = begun(client, lines)
        done = 0
        while done <= 10:
            done = client.batches.retrieve(batch.id).request_counts.completed
        server.process.kill()
        assert done < 120, "the batch is to be cut"
    with client_of(artifact, tmp_path / "s") as (server, client):
        assert client.batches.retrieve(batch.id).request_counts.completed >= done
        found = ended(client, batch)
        assert found.status == "completed"
        assert found.request_counts.completed == 120
        assert answers(client, found.output_file_id).keys() == {one["custom_id"] for one in lines}
        metrics = client._client.get(f"{server.url}/metrics", headers={"x-api-key": "one"}).text
        texts = [one for one in metrics.splitlines() if 'finished_reason="length"' in one]
        computed = float(texts[0].rsplit(" ", 1)[1])
        assert computed <= sum(1 + n % 2 for n in range(120)) - done, "no line is repeated"


def test_cancelling_keeps_what_there_is(artifact: Path, tmp_path: Path) -> None:
    with client_of(artifact, tmp_path / "s", step_s=0.01) as (_, client):
        batch = begun(client, [line(n, max_tokens=40) for n in range(200)])
        while not client.batches.retrieve(batch.id).request_counts.completed:
            time.sleep(0.01)
        assert client.batches.cancel(batch.id).status == "cancelling"
        found = ended(client, batch)
        assert found.status == "cancelled"
        assert 0 < found.request_counts.completed < 200
        assert len(answers(client, found.output_file_id)) == found.request_counts.completed
        with pytest.raises(openai.ConflictError, match="has ended"):
            client.batches.cancel(batch.id)


def test_wrong_files_and_batches(artifact: Path, tmp_path: Path) -> None:
    with client_of(artifact, tmp_path / "s") as (server, client):
        found = ended(client, begun(client, [line(1), line(1)]))
        assert found.status == "failed"
        (error,) = found.errors.data
        assert (error.code, error.line) == ("duplicate_custom_id", 2)
        file = sent(client, [line(1)])
        asked = {"input_file_id": file.id, "endpoint": URL, "completion_window": "24h"}
        for change in ({"endpoint": "/v1/moderations"}, {"completion_window": "1h"}):
            with pytest.raises(openai.BadRequestError) as wrong:
                client.batches.create(**{**asked, **change})
            assert wrong.value.param == next(iter(change))
        with pytest.raises(openai.NotFoundError):
            client.batches.create(**{**asked, "input_file_id": "file-none"})
        with pytest.raises(openai.BadRequestError, match="purpose"):
            client.files.create(file=b"{}", purpose="fine-tune")
        http, headers = client._client, {"authorization": "Bearer one"}
        url = f"{server.url}/v1/files"
        assert http.post(url, json={}, headers=headers).status_code == 415
        no_file = http.post(url, files={"other": b"x"}, headers=headers)
        assert no_file.status_code == 400
        broken = {**headers, "content-type": "multipart/form-data; boundary=x"}
        assert http.post(url, content=b"--y\r\n", headers=broken).status_code == 400
        limit = http.get(f"{server.url}/v1/batches?limit=0", headers=headers)
        assert limit.status_code == 400


def test_without_a_folder_there_are_none(artifact: Path) -> None:
    with (
        serving(artifact) as server,
        openai.OpenAI(base_url=f"{server.url}/v1", api_key="-", max_retries=0) as client,
    ):
        for call in (client.files.list, client.batches.list):
            with pytest.raises(openai.NotFoundError, match="--state FOLDER"):
                call()
