from __future__ import annotations

import dataclasses
import json
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from optc import registry
from optc.cli.main import run
from optc.importer import import_model as importer
from optc.importer.imported import ImportedModel
from optc.proof.gates import measure
from optc.proof.gates.measure import GateReport, judge
from tests.runtime.support.artifacts import ToyBackend, write_artifact
from tests.support.shared import made_once
from tests.support.stub import AheadOfTime, StubBackend, write_tiny_model


@dataclass(frozen=True)
class Outcome:
    """What a command left: exit code and both streams."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> dict[str, Any]:
        assert self.out.count("\n") == 1, "more than one JSON object on stdout"
        value: dict[str, Any] = json.loads(self.out)
        assert value["schema"].startswith("optc.")
        assert isinstance(value["warnings"], list)
        return value


Optc = Callable[..., Outcome]
#: Shows every message: who said it, and what.
CHAT_TEMPLATE = "{% for m in messages %}{{ m.role[0] }}:{{ m.content }};{% endfor %}a:"


@pytest.fixture
def optc(capfd: pytest.CaptureFixture[str]) -> Optc:
    """Runs one command line in this process."""

    def call(*arguments: object) -> Outcome:
        capfd.readouterr()
        code = run([str(argument) for argument in arguments])
        streams = capfd.readouterr()
        return Outcome(code, streams.out, streams.err)

    return call


@pytest.fixture
def talker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An artifact whose model has a chat template; its engine is the toy."""
    monkeypatch.setattr(registry, "backend", {"toy": ToyBackend()}.__getitem__)
    return write_artifact(tmp_path / "talker", chat_template=CHAT_TEMPLATE).path


@pytest.fixture
def stub(monkeypatch: pytest.MonkeyPatch) -> StubBackend:
    """The only backend there is, under its own name and the recipes' ``tvm``."""
    backend = StubBackend()
    monkeypatch.setattr(registry, "backend_names", lambda: ("stub", "tvm"))
    monkeypatch.setattr(registry, "backend", lambda name: backend)
    return backend


@pytest.fixture
def quick_import(imported_tiny: ImportedModel, monkeypatch: pytest.MonkeyPatch) -> None:
    """The tiny model is exported once a session: an export takes seconds."""

    def import_model(source: Path, *, allow_remote_code: bool = False) -> ImportedModel:
        assert (Path(source) / "config.json").is_file()
        return dataclasses.replace(imported_tiny, model=imported_tiny.model.clone())

    monkeypatch.setattr(importer, "import_model", import_model)


@pytest.fixture
def no_import(quick_import: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Importing a model fails the test: what is wrong must have been seen before."""

    def import_model(source: Path, *, allow_remote_code: bool = False) -> ImportedModel:
        raise AssertionError(f"{source} is imported")

    monkeypatch.setattr(importer, "import_model", import_model)


@pytest.fixture
def artifact(
    optc: Optc,
    stub: StubBackend,
    quick_import: None,
    tiny_model: Path,
    tmp_path: Path,
    tmp_path_factory: pytest.TempPathFactory,
) -> Path:
    """The tiny model compiled for the stub, a copy of the test's own."""

    def compile(folder: Path) -> Path:
        arguments = ("-o", folder / "a", "--recipe", "fp32", "--no-gates")
        assert optc("compile", tiny_model, *arguments).code == 0
        return folder / "a"

    made = made_once(tmp_path_factory, "artifact-of-the-stub", compile)
    shutil.copytree(made, tmp_path / "a")
    return tmp_path / "a"


@pytest.fixture(scope="session")
def imported_tiny(tiny_model: Path) -> ImportedModel:
    return importer.import_model(tiny_model)


@pytest.fixture(scope="session")
def tiny_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tiny_model(tmp_path_factory.mktemp("models") / "tiny")


@pytest.fixture
def backends(monkeypatch: pytest.MonkeyPatch) -> dict[str, StubBackend]:
    found = {"tvm": StubBackend("tvm", 20), "aot": AheadOfTime("aot", 30)}
    monkeypatch.setattr(registry, "backend_names", lambda: tuple(sorted(found)))
    monkeypatch.setattr(registry, "backend", found.__getitem__)
    return found


@pytest.fixture
def compile_tiny(
    optc: Optc, stub: StubBackend, quick_import: None, tiny_model: Path, tmp_path: Path
) -> Optc:
    """Compiles the tiny model into ``tmp_path/out/a`` without gates, unless told otherwise."""

    def call(*arguments: object, gates: bool = False) -> Outcome:
        rest = arguments if gates else (*arguments, "--no-gates")
        return optc("compile", tiny_model, "-o", tmp_path / "out/a", "--recipe", "fp32", *rest)

    return call


def nothing_left(tmp_path: Path) -> bool:
    """No part of `compile_tiny`'s output is there."""
    return not (tmp_path / "out").exists()


@pytest.fixture
def compile_engines(
    optc: Optc,
    backends: dict[str, StubBackend],
    quick_import: None,
    tiny_model: Path,
    tmp_path: Path,
) -> Optc:
    """Compiles the tiny model for the given engines into ``tmp_path/out/a``, without gates."""

    def call(*engines: str, options: tuple[object, ...] = ("--no-gates",)) -> Outcome:
        named = [part for engine in engines for part in ("--backend", engine)]
        output = tmp_path / "out/a"
        return optc("compile", tiny_model, "-o", output, "--recipe", "fp32", *named, *options)

    return call


@pytest.fixture
def measured(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Gates cost nothing; the references that engines are compared with are remembered."""
    references: list[Any] = []

    def fake(reference: Any, executable: object, windows: Any, bounds: Any, **options: Any) -> Any:
        reference.hidden_states(windows.ids[:, :-1])
        references.append((reference, options["speed"]))
        return GateReport((judge("kl_mean", 1e-7, bounds["kl_mean"]),), {"tokens": 640})

    monkeypatch.setattr(measure, "measure_gates", fake)
    return references
