"""Runtime libraries for another kind of processor: fetched once, copied into engines."""

from __future__ import annotations

import subprocess
import zipfile
from pathlib import Path
from types import SimpleNamespace

import pytest

from optc.backends.tvm import BACKEND, runtime_fetch
from optc.backends.tvm.engine_files import LIBRARIES
from optc.backends.tvm.runtime_fetch import fetch, fetched_folder, lacking
from optc.backends.tvm.runtime_libs import copy_libraries
from optc.errors import UnavailableError
from optc.system.hardware.platforms import AARCH64, MACOS_ARM, X86_64
from optc.system.hardware.target import known_targets


@pytest.fixture(autouse=True)
def on_x86(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("platform.machine", lambda: X86_64)
    monkeypatch.setenv("OPTC_CACHE", str(tmp_path / "cache"))


@pytest.fixture
def index(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """A package index with one wheel, which has the libraries in ``names``."""
    state = SimpleNamespace(names=LIBRARIES, commands=[], failure="")

    def run(command: list[str], **_: object) -> SimpleNamespace:
        state.commands.append(command)
        if state.failure:
            return SimpleNamespace(returncode=1, stderr=state.failure)
        folder = Path(command[command.index("--dest") + 1])
        with zipfile.ZipFile(folder / "apache_tvm.whl", "w") as wheel:
            for name in state.names:
                wheel.writestr(f"tvm/lib/{name}", f"code of {name}")
        return SimpleNamespace(returncode=0, stderr="")

    monkeypatch.setattr(subprocess, "run", run)
    return state


def test_what_this_machine_needs_is_there() -> None:
    assert lacking("") == lacking(X86_64) == ""
    assert BACKEND.lacks(known_targets()["x86-64-v3"]) == ""
    assert BACKEND.fetch(known_targets()["x86-64-v3"]).startswith("nothing to fetch")


def test_what_is_missing_is_said_with_the_command_that_gets_it(tmp_path: Path) -> None:
    reason = BACKEND.lacks(known_targets()["aarch64-i8mm"])
    assert "for aarch64 are not on this machine" in reason
    assert "'optc targets --fetch aarch64-dotprod'" in reason
    with pytest.raises(UnavailableError, match="are not on this machine"):
        copy_libraries(tmp_path, platform=AARCH64)
    assert not list(tmp_path.glob("*.so"))


def test_fetched_libraries_are_copied(index: SimpleNamespace, tmp_path: Path) -> None:
    said = BACKEND.fetch(known_targets()["aarch64-dotprod"])
    assert str(fetched_folder(AARCH64)) in said
    (command,) = index.commands
    assert "manylinux_2_28_aarch64" in command
    assert lacking(AARCH64) == BACKEND.lacks(known_targets()["aarch64-i8mm"]) == ""
    assert copy_libraries(tmp_path, platform=AARCH64) == LIBRARIES
    assert [(tmp_path / n).read_text() for n in LIBRARIES] == [f"code of {n}" for n in LIBRARIES]


def test_libraries_for_macos_have_its_names(index: SimpleNamespace, tmp_path: Path) -> None:
    target = known_targets()["arm64-macos-i8mm"]
    reason = BACKEND.lacks(target)
    assert "for arm64-macos are not on this machine" in reason
    assert "'optc targets --fetch arm64-macos-dotprod'" in reason
    names = ("libtvm_runtime.dylib", "libtvm_runtime_extra.dylib")
    index.names = names
    assert str(fetched_folder(MACOS_ARM)) in BACKEND.fetch(target)
    (command,) = index.commands
    assert "macosx_11_0_arm64" in command
    assert BACKEND.lacks(target) == ""
    assert lacking(AARCH64), "those of Linux are others"
    assert copy_libraries(tmp_path, platform=MACOS_ARM) == names
    assert [(tmp_path / n).read_text() for n in names] == [f"code of {n}" for n in names]


def test_failures_say_what_to_do(index: SimpleNamespace, monkeypatch: pytest.MonkeyPatch) -> None:
    index.failure = "one line\nno such host"
    with pytest.raises(UnavailableError, match=r"could not download .* for aarch64: .*no such"):
        fetch(AARCH64)
    index.failure, index.names = "", LIBRARIES[:1]
    with pytest.raises(UnavailableError, match=f"the wheel has no {LIBRARIES[1]}"):
        fetch(AARCH64)
    assert lacking(AARCH64), "nothing is kept by halves"
    monkeypatch.setattr(runtime_fetch.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(UnavailableError, match="fetching needs pip") as caught:
        fetch(AARCH64)
    assert caught.value.hint == "python -m ensurepip"
