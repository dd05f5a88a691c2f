"""Adapters over HTTP: what a name gives is what the engine gives with the adapter."""

from __future__ import annotations

from pathlib import Path

from starlette.testclient import TestClient

import optc
from optc.serve.app import make_app
from optc.serve.models import AdapterSource, ModelSource, ModelTable
from optc.serve.service import Service
from optc.serve.settings import HTTPSettings
from tests.runtime.adapters.test_peft import saved
from tests.serve.test_models import adapted


def test_requests_choose_an_adapter(tmp_path: Path) -> None:
    engine = adapted()
    source = ModelSource("base", lambda: engine, (AdapterSource("sql", saved(tmp_path)),))
    table = ModelTable([source])
    table.load()
    http = TestClient(make_app(Service(table, HTTPSettings())))
    params = optc.SamplingParams(temperature=0, max_tokens=4)
    try:
        for name, adapter in (("base", None), ("sql", "sql")):
            (wanted,) = engine.generate(["hi"], params, adapter=adapter)
            body = {"model": name, "prompt": "hi", "temperature": 0, "max_tokens": 4}
            found = http.post("/v1/completions", json=body).json()
            assert found["model"] == name
            assert found["choices"][0]["text"] == wanted.text
        assert http.post("/v1/completions", json={"prompt": "hi"}).status_code == 400
    finally:
        table.close()
