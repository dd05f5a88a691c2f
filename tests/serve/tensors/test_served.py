"""Models of named tensors are models of the server: listed, counted, loaded, unloaded, closed."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from urllib.request import Request, urlopen

import numpy as np
import onnx
import pytest

import optc
from optc.errors import InputError
from optc.serve.models import AdapterSource, ModelSource, ModelTable
from optc.serve.settings import HTTPSettings
from tests.importer.tensors.encoders import sentence_transformer
from tests.serve.conftest import Api, MakeApi
from tests.serve.processes import serving
from tests.serve.tensors.test_infer import FLAG, INFER, X
from tests.serve.tensors.toys import Sums, adder, embedder

ADMIN = {"authorization": "Bearer admin"}


def test_they_are_listed_and_counted(three: Api) -> None:
    listed = three.http.get("/v1/models").json()["data"]
    assert [one["id"] for one in listed] == ["toy", "embedder", "org/adder"]
    assert three.http.get("/v1/models/org/adder").json()["object"] == "model"
    three.post(INFER, inputs=[X, FLAG])
    metrics = three.http.get("/metrics").text
    assert 'optc:tensor_call_seconds_count{engine="0",model_name="org/adder"} 1.0' in metrics
    assert 'optc:tensor_call_seconds_count{engine="0",model_name="embedder"} 0.0' in metrics
    assert three.http.get("/status").json()["models"][0]["name"] == "toy"


def test_a_server_of_them_alone(make_api: MakeApi) -> None:
    api = make_api({"org/adder": adder()})
    assert api.http.get("/ready").json() == {"status": "ready"}
    assert api.http.get("/health").json() == {"status": "ok"}
    assert api.http.get("/load").json()["server_load"] == 0
    assert api.http.get("/status").json()["models"] == []
    assert "name a model" in api.error("/v1/completions", prompt="a")["message"]


def test_a_full_queue_is_busy(make_api: MakeApi) -> None:
    sums = Sums()
    api = make_api({"org/adder": adder(sums)}, places=1)
    sums.may_go.clear()
    post = partial(api.post, INFER, inputs=[X, FLAG])
    with api.http, ThreadPoolExecutor(2) as pool:  # one event loop for all
        answers = [pool.submit(post) for _ in range(2)]
        while api.http.get("/load").json() != {"server_load": 2, "running": 1, "waiting": 1}:
            pass
        assert api.http.get("/ready").json() == {"status": "busy"}
        answer = api.http.post(INFER, json={"inputs": [X, FLAG]})
        assert (answer.status_code, answer.headers["retry-after"]) == (429, "1")
        sums.may_go.set()
        assert all(one.result()["outputs"] for one in answers)
        assert api.http.get("/ready").json() == {"status": "ready"}
    assert sums.calls == 2


def test_they_are_unloaded(make_api: MakeApi) -> None:
    settings = HTTPSettings(admin_keys=("admin",))
    api = make_api({"embedder": embedder(), "org/adder": adder()}, settings)
    found = api.http.get("/admin/models", headers=ADMIN).json()["data"]
    assert [(one["id"], one["state"], one["engine"]) for one in found] == [
        ("embedder", "ready", "toy"),
        ("org/adder", "ready", "toy"),
    ]
    body = {"name": "org/adder"}
    answer = api.http.post("/admin/models/unload", json=body, headers=ADMIN)
    assert answer.json() == {"id": "org/adder", "object": "model", "deleted": True}
    assert api.error(INFER, 404, inputs=[X, FLAG])["code"] == "model_not_found"


def test_they_have_no_adapters() -> None:
    source = ModelSource("adder", adder, (AdapterSource("sql", Path("nowhere")),))
    with pytest.raises(InputError, match="adapters are for decoders"):
        ModelTable([source]).load()


def test_artifacts_are_served_to_a_client_of_the_protocol(tmp_path: Path) -> None:
    """Two artifacts, from the command line, over a socket."""
    triton = pytest.importorskip("tritonclient.http", reason="tritonclient is not installed")
    texts = sentence_transformer(tmp_path / "st", "mean_tokens")
    paths = [optc.compile(texts, output=tmp_path / "texts").path]
    export_adder(tmp_path / "adder.onnx")
    paths.append(optc.compile(tmp_path / "adder.onnx", output=tmp_path / "adder").path)
    with serving(*paths) as server:
        client = triton.InferenceServerClient(server.url.removeprefix("http://"))
        assert client.is_server_live()
        assert client.is_server_ready()
        assert client.is_model_ready("adder")
        (one,) = client.get_model_metadata("adder")["inputs"]
        assert one == {"name": "x", "datatype": "FP32", "shape": [-1, 3]}
        x = np.arange(6, dtype=np.float32).reshape(2, 3)
        given = triton.InferInput("x", [2, 3], "FP32")
        given.set_data_from_numpy(x)
        np.testing.assert_array_equal(client.infer("adder", [given]).as_numpy("y"), x + 1)
        body = json.dumps({"model": "texts", "input": "abc"}).encode()
        request = Request(f"{server.url}/v1/embeddings", body, {"content-type": "application/json"})
        with urlopen(request) as answer:
            (found,) = json.load(answer)["data"]
        client.close()
        server.terminate()
        assert server.ended()[0] == 0
    with optc.load_tensors(paths[0]) as engine:
        assert isinstance(engine, optc.Embedder)
        np.testing.assert_allclose(found["embedding"], engine.embed(["abc"])[0], atol=1e-6)


def export_adder(path: Path) -> None:
    """An ONNX file that adds one."""
    text = """
        <ir_version: 10, opset_import: ["" : 20]>
        main (float[batch, 3] x) => (float[batch, 3] y) <float one = {1.0}> { y = Add(x, one) }
    """
    onnx.save(onnx.parser.parse_model(text), path)
