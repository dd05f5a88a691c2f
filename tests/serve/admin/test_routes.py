"""Admin routes: off without a key; models and adapters come and go while the server serves."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient

import optc
from optc import registry
from optc.artifact.artifact import read_manifest
from optc.errors import ArtifactError
from optc.runtime.engine import Engine
from optc.runtime.receipts.log_file import read_receipts
from optc.serve.admin.routes import ADMIN
from optc.serve.app import make_app
from optc.serve.models import ModelSource, ModelTable
from optc.serve.receipts import Receipts
from optc.serve.service import Service
from optc.serve.settings import HTTPSettings
from tests.runtime.adapters.test_peft import saved
from tests.runtime.support.artifacts import ToyBackend, write_artifact
from tests.serve.conftest import MakeApi
from tests.serve.test_models import adapted
from tests.serve.toys import SPEC, WaitingExecutable, toy_engine

KEY = {"authorization": "Bearer sk-admin"}


class Admin:
    """A server with a folder from which it loads.

    Attributes:
        table: Its models.
        opened: What was loaded from the folder.
    """

    def __init__(self, folder: Path, base: Engine, **settings: Any) -> None:
        self.folder = folder
        self.opened: list[Path] = []
        self.table = ModelTable([ModelSource("base", lambda: base)], self._open)
        self.table.load()
        given = {"admin_keys": ("sk-admin",), "admin_folder": folder, **settings}
        self.http = TestClient(make_app(Service(self.table, HTTPSettings(**given))))

    def _open(self, path: Path) -> Engine:
        self.opened.append(path)
        if path.name == "damaged":
            raise ArtifactError("it is damaged", where=str(path))
        return toy_engine()

    def post(self, path: str, status: int = 200, **body: Any) -> dict[str, Any]:
        answer = self.http.post(path, json=body, headers=KEY)
        assert answer.status_code == status, answer.text
        found: dict[str, Any] = answer.json()
        return found

    @property
    def names(self) -> list[str]:
        return [one["id"] for one in self.http.get("/v1/models").json()["data"]]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "models"
    for name in ("small", "damaged"):
        (made / name).mkdir(parents=True)
    return made


@pytest.fixture
def admin(folder: Path) -> Any:
    found = Admin(folder, adapted())
    yield found
    found.table.close()


def test_they_are_off_without_a_key(make_api: MakeApi) -> None:
    api = make_api(settings=HTTPSettings(keys=("sk-one",)))
    for path, (method, _, _) in ADMIN.items():
        answer = api.http.request(method, path, headers={"x-api-key": "sk-one"}, json={})
        assert answer.status_code == 404
        assert "admin routes are off" in answer.json()["error"]["message"]


def test_another_key_opens_nothing(folder: Path) -> None:
    admin = Admin(folder, toy_engine(), keys=("sk-one",))
    try:
        for key in ("sk-one", "sk-two", ""):
            for path, (method, _, _) in ADMIN.items():
                answer = admin.http.request(method, path, headers={"x-api-key": key}, json={})
                assert answer.status_code == 401, path
        assert admin.http.get("/v1/models", headers=KEY).status_code == 401, "nor the other way"
    finally:
        admin.table.close()


def test_a_model_comes_and_goes(admin: Admin, folder: Path) -> None:
    described = admin.post("/admin/models/load", artifact="small", name="s")
    assert (described["id"], described["state"], described["running"]) == ("s", "running", 0)
    assert admin.opened == [(folder / "small").resolve()]
    assert admin.names == ["base", "s"]
    body = {"model": "s", "prompt": "hi", "max_tokens": 2}
    assert admin.http.post("/v1/completions", json=body).status_code == 200
    listed = admin.http.get("/admin/models", headers=KEY).json()["data"]
    assert [one["id"] for one in listed] == ["base", "s"]
    engine = admin.table.engines["s"]
    assert admin.post("/admin/models/unload", name="s")["deleted"] is True
    assert engine.health().state == "closed"
    assert admin.names == ["base"]
    assert admin.http.post("/v1/completions", json=body).status_code == 404
    assert admin.post("/admin/models/load", artifact="small")["id"] == "small"


def test_what_runs_ends_before_its_model_goes(folder: Path) -> None:
    executable = WaitingExecutable(SPEC)
    admin = Admin(folder, toy_engine(lambda: executable))
    try:
        engine = admin.table.engines["base"]
        handle = engine.submit([5, 6])
        unloading = threading.Thread(target=lambda: admin.post("/admin/models/unload", name="base"))
        unloading.start()
        while "base" in admin.table.engines:
            pass
        assert unloading.is_alive()
        executable.let_go()
        unloading.join()
        assert handle.result().finish_reason in ("stop", "length")
        assert engine.health().state == "closed"
    finally:
        admin.table.close()


def test_an_adapter_comes_and_goes(admin: Admin, folder: Path) -> None:
    (folder / "sql").mkdir()
    saved(folder / "sql")
    described = admin.post("/v1/load_lora_adapter", lora_name="sql", lora_path="sql")
    assert (described["id"], described["parent"]) == ("sql", "base")
    assert admin.names == ["base", "sql"]
    answers = [
        admin.http.post("/v1/completions", json={"model": name, "prompt": "hi", "temperature": 0})
        for name in ("base", "sql")
    ]
    assert len({one.json()["choices"][0]["text"] for one in answers}) == 2
    admin.post("/v1/load_lora_adapter", 409, lora_name="sql", lora_path="sql")
    assert admin.post("/v1/unload_lora_adapter", lora_name="sql")["deleted"] is True
    assert admin.names == ["base"]
    assert admin.table.engines["base"].adapters == ()
    admin.post("/v1/load_lora_adapter", lora_name="sql", lora_path="sql")
    assert admin.post("/admin/models/unload", name="base")["deleted"] is True
    assert admin.names == []


@pytest.mark.parametrize(
    ("path", "body", "status", "message"),
    [
        ("/admin/models/load", {"artifact": "nothing"}, 400, "no folder below the admin folder"),
        ("/admin/models/load", {"artifact": ".."}, 400, "no folder below"),
        ("/admin/models/load", {"artifact": "/"}, 400, "no folder below"),
        ("/admin/models/load", {"artifact": "link"}, 400, "no folder below"),
        ("/admin/models/load", {"artifact": "a\0b"}, 400, "no folder below"),
        ("/admin/models/load", {"artifact": "small", "name": "base"}, 409, "model 'base' already"),
        ("/admin/models/load", {"artifact": "small", "name": "a\nb"}, 400, "name"),
        ("/admin/models/load", {"artifact": "damaged"}, 400, "it is damaged"),
        ("/admin/models/load", {}, 400, "artifact is missing"),
        ("/admin/models/unload", {"name": "other"}, 404, "the model 'other' does not exist"),
        ("/v1/load_lora_adapter", {"lora_name": "a", "lora_path": "small"}, 400, ""),
        ("/v1/unload_lora_adapter", {"lora_name": "base"}, 400, "'base' is no adapter"),
    ],
)
def test_what_is_refused(
    admin: Admin, folder: Path, path: str, body: dict[str, Any], status: int, message: str
) -> None:
    (folder / "link").symlink_to(folder.parent)
    assert message in admin.post(path, status, **body)["error"]["message"]
    assert admin.names == ["base"]


def test_without_a_folder_nothing_is_loaded(folder: Path) -> None:
    admin = Admin(folder, toy_engine(), admin_folder=None)
    try:
        error = admin.post("/admin/models/load", 400, artifact="small")["error"]
        assert "--admin-folder says from where" in error["message"]
    finally:
        admin.table.close()


def test_while_the_server_stops(admin: Admin) -> None:
    admin.http.app.state.service.draining = True  # type: ignore[attr-defined]
    admin.post("/admin/models/load", 503, artifact="small")


def test_a_model_whose_adapters_are_loaded_is_no_adapter(admin: Admin, folder: Path) -> None:
    (folder / "sql").mkdir()
    saved(folder / "sql")
    admin.post("/v1/load_lora_adapter", lora_name="sql", lora_path="sql")
    error = admin.post("/admin/models/unload", 400, name="sql")["error"]
    assert "use /v1/unload_lora_adapter" in error["message"]


@pytest.fixture
def swapping(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """A server of ``a``, beside ``b`` with other weights and ``c`` with other code."""
    monkeypatch.setattr(registry, "backend", {"toy": ToyBackend()}.__getitem__)
    for name, weights, code in (("a", "1", b"toy"), ("b", "2", b"toy"), ("c", "2", b"other")):
        write_artifact(tmp_path / name, weights=weights, code=code)
    found = Admin(tmp_path, optc.load(tmp_path / "a", kv_memory="1MiB"))
    yield found
    found.table.close()


def test_new_weights_between_two_requests_and_back(swapping: Admin) -> None:
    body = {"model": "base", "prompt": "hello", "max_tokens": 12, "temperature": 0.9, "seed": 1}

    def asked() -> tuple[str, str]:
        answer = swapping.http.post("/v1/completions", json=body).json()
        return answer["choices"][0]["text"], answer["system_fingerprint"]

    first = asked()
    described = swapping.post("/admin/models/swap", name="base", artifact="b")
    assert described["artifact"] == read_manifest(swapping.folder / "b").digest
    second = asked()
    assert first[0] != second[0]
    assert second[1] == f"optc-{described['artifact'][:12]}-target"
    assert swapping.names == ["base"]
    swapping.post("/admin/models/swap", name="base", artifact="a")
    assert asked() == first


def test_weights_that_do_not_fit_change_nothing(swapping: Admin) -> None:
    for artifact, message in (("c", "another engine"), ("d", "'d' is no folder below")):
        error = swapping.post("/admin/models/swap", 400, name="base", artifact=artifact)["error"]
        assert message in error["message"]
    assert swapping.post("/admin/models/swap", 404, name="other", artifact="b")
    listed = swapping.http.get("/admin/models", headers=KEY).json()["data"]
    assert listed[0]["artifact"] == read_manifest(swapping.folder / "a").digest


def test_receipts_name_the_weights_that_answered(swapping: Admin, tmp_path: Path) -> None:
    service = swapping.http.app.state.service  # type: ignore[attr-defined]
    service.receipts = Receipts(tmp_path / "receipts")
    body = {"model": "base", "prompt": "hello", "max_tokens": 3}
    for artifact in "ba":
        swapping.post("/admin/models/swap", name="base", artifact=artifact)
        assert swapping.http.post("/v1/completions", json=body).status_code == 200
    swapping.table.close()
    service.receipts.close()
    found = [one.origin.artifact for _, one in read_receipts(tmp_path / "receipts")]
    assert found == [read_manifest(swapping.folder / name).digest for name in "ba"]
