"""The local store: names, what there is, and what is removed."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

from optc.artifact.store.local import (
    check_found,
    check_name,
    find_artifact,
    remove,
    store_root,
    stored,
)
from optc.errors import InputError, NoArtifactError
from tests.artifact.toy import write_toy


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("OPTC_STORE", str(tmp_path / "store"))
    monkeypatch.chdir(tmp_path)
    return tmp_path / "store"


def test_the_root(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OPTC_STORE", raising=False)
    assert store_root() == Path("artifacts")
    monkeypatch.setenv("OPTC_STORE", "")
    assert store_root() == Path("artifacts")
    monkeypatch.setenv("OPTC_STORE", "/models")
    assert store_root() == Path("/models")


def test_what_is_stored(store: Path) -> None:
    assert stored() == []
    write_toy(store / "b")
    write_toy(store / "a")
    (store / "no-artifact").mkdir()
    (store / ".a.partial-7").mkdir()
    (store / ".a.partial-7/manifest.json").write_text("{}")
    (store / "c").mkdir()
    (store / "c/manifest.json").write_text("{")
    a, b, c = stored()
    assert (a.name, b.name, c.name) == ("a", "b", "c")
    assert (a.bytes, a.signed, a.problem) == (10240 + 4 + 47, False, "")
    assert c.manifest is None
    assert "is not JSON" in c.problem
    (store / "a/model.sig").write_text("{}")
    assert stored()[0].signed


def test_a_path_goes_before_a_name(store: Path) -> None:
    write_toy(store / "model")
    assert find_artifact("model") == store / "model"
    Path("model").mkdir()
    assert find_artifact("model") == Path("model")
    for given in ("absent", "./absent", "x/model", ".model", str(store / "model")):
        assert find_artifact(given) == Path(given)


def test_what_was_probably_meant(store: Path) -> None:
    write_toy(store / "model")
    for given in ("other", "x/modle", "model/x"):
        check_found(Path(given))
    with pytest.raises(
        NoArtifactError, match=r"modle: no such artifact \(did you mean 'model'\?\)"
    ):
        check_found(Path("modle"))
    Path("model").mkdir()  # such as the model's own folder
    hint = re.escape(f"model: holds no manifest.json (the store's artifact of that name is {store}")
    with pytest.raises(NoArtifactError, match=hint):
        check_found(Path("model"))
    Path("model/manifest.json").write_text("{")  # damaged: who opens it says so
    check_found(Path("model"))


def test_names() -> None:
    assert check_name("pycode-int8_v1.2+x", "--name") == "pycode-int8_v1.2+x"
    for name in ("", ".hidden", "a/b", "a b", "-x", ".."):
        with pytest.raises(InputError, match=r"--name: .* is no name"):
            check_name(name, "--name")


def test_an_artifact_is_removed(store: Path) -> None:
    files = [one for one in write_toy(store / "a").path.rglob("*") if one.is_file()]
    expected = sum(len(one.read_bytes()) for one in files)
    assert remove(store / "a") == expected
    assert list(store.iterdir()) == []


def test_what_a_killed_removal_left_goes_with_the_next(store: Path) -> None:
    left, other = store / ".other.removed-123", store / ".mail.removed-in-2025"
    (left / "engine").mkdir(parents=True)
    other.mkdir()
    strange = store / ".strange.removed-1"
    strange.write_text("no folder, so nobody's")
    remove(write_toy(store / "going").path)
    assert set(store.iterdir()) == {other, strange}


def test_nothing_else_is_removed(store: Path, tmp_path: Path) -> None:
    write_toy(store / "model")
    (tmp_path / "notes").mkdir()
    (tmp_path / "web").mkdir()
    (tmp_path / "web/manifest.json").write_text('{"name": "an application", "icons": []}')
    for path in (tmp_path / "notes", tmp_path / "absent", tmp_path / "web"):
        with pytest.raises(InputError, match="is no artifact; nothing is removed"):
            remove(path)
    with pytest.raises(InputError, match="did you mean 'model'"):
        remove(store / "modl")
    (tmp_path / "link").symlink_to(store / "model")
    with pytest.raises(InputError, match=r"link: is a link \(rm .*link removes the link"):
        remove(tmp_path / "link")
    assert (store / "model/manifest.json").exists()
    assert (tmp_path / "notes").exists()
    assert (tmp_path / "web/manifest.json").exists()


@pytest.mark.parametrize("damage", ["", "{", "{}", "[]"])
def test_a_damaged_artifact_is_removed(store: Path, damage: str) -> None:
    (write_toy(store / "a").path / "manifest.json").write_text(damage)
    remove(store / "a")
    assert list(store.iterdir()) == []


def test_the_time_of_an_artifact_is_that_of_its_manifest(store: Path) -> None:
    made = write_toy(store / "a")
    os.utime(made.path / "manifest.json", (5, 86_400))
    assert stored()[0].written_s == 86_400


def failing(*_: object) -> None:
    raise PermissionError(13, "Permission denied")


def test_a_store_that_cannot_be_read(store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_toy(store / "a")
    monkeypatch.setattr(os, "scandir", failing)
    with pytest.raises(InputError, match="store: cannot be read: Permission denied"):
        stored()


def test_an_artifact_that_cannot_be_removed(store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = write_toy(store / "a")
    with monkeypatch.context() as patch:
        patch.setattr(Path, "rename", failing)
        with pytest.raises(InputError, match="a: cannot be removed: Permission denied"):
            remove(made.path)
    assert stored()[0].problem == ""
