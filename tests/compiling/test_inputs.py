"""Bad models, through the command line: one clear message, the right code, nothing left behind."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from optc import registry
from optc.cli.main import run
from tests.support.stub import StubBackend, write_tiny_model

Break = Callable[[Path], object]


@pytest.fixture(scope="module")
def sound_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tiny_model(tmp_path_factory.mktemp("models") / "tiny")


@pytest.fixture
def model(sound_model: Path, tmp_path: Path) -> Path:
    return shutil.copytree(sound_model, tmp_path / "models/tiny")


def edit_config(**changes: object) -> Break:
    def change(model: Path) -> None:
        path = model / "config.json"
        config = {**json.loads(path.read_text()), **changes}
        path.write_text(json.dumps({k: v for k, v in config.items() if v is not None}))

    return change


def truncate(model: Path) -> None:
    path = model / "model.safetensors"
    path.write_bytes(path.read_bytes()[:-100])


def to_pickle(model: Path) -> None:
    (model / "model.safetensors").rename(model / "pytorch_model.bin")


def damage_tokenizer(model: Path) -> None:
    (model / "tokenizer.json").write_text("{")


CASES: list[tuple[str, Break, list[str]]] = [
    (
        "missing config",
        lambda m: (m / "config.json").unlink(),
        ["weights without config.json, which says how"],
    ),
    (
        "missing safetensors",
        lambda m: (m / "model.safetensors").unlink(),
        ["safetensors"],
    ),
    ("truncated safetensors", truncate, ["model.safetensors"]),
    (
        "empty safetensors",
        lambda m: (m / "model.safetensors").write_bytes(b""),
        ["model.safetensors"],
    ),
    (
        "no architecture",
        edit_config(architectures=None),
        ["config.json: architectures is missing"],
    ),
    (
        "not a decoder",
        edit_config(architectures=["T5ForConditionalGeneration"]),
        ["T5ForConditionalGeneration is not a decoder-only language model"],
    ),
    ("no checkpoint of PyTorch", to_pickle, ["no checkpoint as PyTorch writes it since 1.6"]),
    (
        "remote code",
        edit_config(auto_map={"AutoModelForCausalLM": "evil.Model"}),
        ["auto_map names Python code of the repository"],
    ),
    (
        "quantized already",
        edit_config(quantization_config={"quant_method": "aqlm"}),
        ["quantized already, by aqlm, which optc does not read"],
    ),
]


@pytest.mark.parametrize(("damage", "messages"), [c[1:] for c in CASES], ids=[c[0] for c in CASES])
def test_a_bad_model_is_one_clear_error_and_leaves_nothing(
    model: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
    damage: Break,
    messages: list[str],
) -> None:
    backend = StubBackend()
    monkeypatch.setattr(registry, "backend", lambda name: backend)
    damage(model)
    before = sorted(tmp_path.rglob("*"))
    code = run(["compile", str(model), "-o", str(tmp_path / "out/a"), "--recipe", "fp32"])
    errors = [line for line in capfd.readouterr().err.splitlines() if line.startswith("error: ")]
    assert code == 2
    assert len(errors) == 1
    for message in messages:
        assert message in errors[0]
    assert sorted(tmp_path.rglob("*")) == before
    assert backend.built == []


def test_sources_that_are_no_model_folder(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "m.pt").write_bytes(b"\x80\x04")
    for source, message in (
        (tmp_path / "absent", "no such model folder"),
        (tmp_path / "m.pt", "weights of PyTorch under another name"),
    ):
        assert run(["compile", str(source), "-o", str(tmp_path / "out/a")]) == 2
        assert message in capfd.readouterr().err
        assert not (tmp_path / "out").exists()
