"""What loading checks: files, releases, and the execution provider that a session really has."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import onnx
import pytest
from msgspec.structs import replace

from optc.backends.onnxruntime import BACKEND, loader, packages, providers
from optc.backends.onnxruntime.engine_data import SPEC_METADATA
from optc.backends.onnxruntime.loader import load_engine, open_lowered
from optc.backends.onnxruntime.providers import CPU, CUDA, open_session
from optc.errors import ArtifactError, UnavailableError
from tests.backends.onnxruntime.engines import FAMILIES, Driver, open_engine
from tests.support.families import FUSED

DATA = {"provider": CPU, "release": "1.31"}


def test_missing_files_are_named(tmp_path: Path) -> None:
    spec = open_engine(FAMILIES["llama"], FUSED, tmp_path).spec
    (tmp_path / "weights.bin").unlink()
    with pytest.raises(ArtifactError) as caught:
        load_engine(tmp_path, spec, DATA, 1)
    assert str(caught.value) == (
        "weights.bin: the file is missing (the artifact is incomplete: copy it again)"
    )


@pytest.mark.parametrize(
    "change", [{"vocab_size": 1}, {"samples": True}, {"max_logit_rows": 2**31 - 1}]
)
def test_a_spec_that_is_not_the_models_is_refused(tmp_path: Path, change: dict[str, Any]) -> None:
    spec = open_engine(FAMILIES["llama"], FUSED, tmp_path).spec
    with pytest.raises(ArtifactError, match=r"model\.onnx: the manifest describes another engine"):
        load_engine(tmp_path, replace(spec, **change), DATA, 1)


def test_a_model_that_names_no_spec_is_loaded(tmp_path: Path) -> None:
    spec = open_engine(FAMILIES["llama"], FUSED, tmp_path).spec
    model = onnx.load(tmp_path / "model.onnx", load_external_data=False)
    assert [entry.key for entry in model.metadata_props if entry.key == SPEC_METADATA]
    del model.metadata_props[:]
    onnx.save(model, tmp_path / "model.onnx")
    assert load_engine(tmp_path, spec, DATA, 1).spec == spec


def test_engines_of_a_newer_release_say_so(tmp_path: Path) -> None:
    spec = open_engine(FAMILIES["llama"], FUSED, tmp_path).spec
    with pytest.raises(UnavailableError, match=r"is too old: pip install -U 'onnxruntime>=9.9'"):
        load_engine(tmp_path, spec, {**DATA, "release": "9.9"}, 1)


def test_a_model_in_slot_form_is_opened_as_it_is(tmp_path: Path) -> None:
    engine = open_engine(FAMILIES["odd heads"], FUSED, tmp_path)
    lowered = open_lowered(tmp_path / "model.onnx", engine.spec, 1)
    rows, slots = {0: [1, 2, 3]}, {0: 1}
    got, want = (Driver(e).step(rows, slots) for e in (lowered, engine))
    assert (got == want).all()
    assert BACKEND.open_lowered(tmp_path / "model.onnx", engine.spec, 1).spec == engine.spec


def fake_onnxruntime(offered: list[str], running: list[str]) -> Any:
    session = SimpleNamespace(get_providers=lambda: running)
    return SimpleNamespace(
        __version__="1.31.1",
        SessionOptions=SimpleNamespace,
        get_available_providers=lambda: offered,
        InferenceSession=lambda *_, **__: session,
    )


def test_a_provider_that_does_not_start_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """ONNX Runtime would run on the CPU and say so in its log only."""
    fake = fake_onnxruntime([CUDA, CPU], [CPU])
    monkeypatch.setattr(providers, "import_onnxruntime", lambda kind: fake)
    with pytest.raises(UnavailableError) as caught:
        open_session(Path("model.onnx"), CUDA, 1)
    assert caught.value.message == (
        "CUDAExecutionProvider could not be started: ONNX Runtime took CPUExecutionProvider instead"
    )
    fake = fake_onnxruntime([CUDA, CPU], [CUDA, CPU])
    assert open_session(Path("model.onnx"), CUDA, 1).get_providers()[0] == CUDA


def test_a_provider_that_the_package_lacks_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    fake = fake_onnxruntime([CPU], [CPU])
    monkeypatch.setattr(providers, "import_onnxruntime", lambda kind: fake)
    with pytest.raises(UnavailableError) as caught:
        open_session(Path("model.onnx"), CUDA, 1)
    assert str(caught.value) == (
        "onnxruntime backend: the installed ONNX Runtime 1.31.1 has no CUDAExecutionProvider "
        "(it offers CPUExecutionProvider)"
    )


def test_engines_for_cuda_need_the_other_package(monkeypatch: pytest.MonkeyPatch) -> None:
    have = {"onnxruntime": "1.31.1"}
    monkeypatch.setattr(packages, "installed", lambda: have)
    monkeypatch.setattr(loader, "installed", lambda: have)
    assert loader.unusable(CPU, "1.31") == ""
    assert loader.unusable(CUDA, "1.31").startswith("onnxruntime-gpu is not installed")


@pytest.mark.parametrize("damage", [b"\xff" * 8, b"", b"\x08\x09"])
def test_a_model_that_is_none_is_one_clear_error(tmp_path: Path, damage: bytes) -> None:
    spec = open_engine(FAMILIES["llama"], FUSED, tmp_path).spec
    (tmp_path / "model.onnx").write_bytes(damage)
    with pytest.raises(ArtifactError, match="ONNX Runtime cannot open the model") as caught:
        load_engine(tmp_path, spec, DATA, 1)
    assert caught.value.where == str(tmp_path / "model.onnx")
