"""Which package is installed, and what to do about it."""

from __future__ import annotations

from importlib import metadata

import pytest

from optc.backends.onnxruntime import packages
from optc.errors import UnavailableError


@pytest.fixture
def having(monkeypatch: pytest.MonkeyPatch):  # type: ignore[no-untyped-def]
    def install(**versions: str) -> None:
        named = {name.replace("_", "-"): version for name, version in versions.items()}

        def version(name: str) -> str:
            if name not in named:
                raise metadata.PackageNotFoundError(name)
            return named[name]

        monkeypatch.setattr(packages, "version", version)

    return install


def test_both_at_once_name_the_fix(having) -> None:  # type: ignore[no-untyped-def]
    having(onnxruntime="1.31.1", onnxruntime_gpu="1.31.1")
    overwrite = (
        "onnxruntime and onnxruntime-gpu are both installed and overwrite each other's files"
    )
    uninstall = "pip uninstall -y onnxruntime onnxruntime-gpu && pip install"
    assert packages.problem("cpu") == f"{overwrite}: {uninstall} onnxruntime"
    assert packages.problem("cuda") == f"{overwrite}: {uninstall} onnxruntime-gpu"
    with pytest.raises(UnavailableError, match="are both installed"):
        packages.import_onnxruntime("cpu")


def test_what_is_missing_is_named(having) -> None:  # type: ignore[no-untyped-def]
    having()
    assert packages.problem("cpu") == (
        "onnxruntime is not installed: pip install 'optc[onnxruntime]'"
    )
    having(onnxruntime="1.31.1")
    assert packages.problem("cpu") == ""
    assert packages.problem("cuda") == (
        "onnxruntime-gpu is not installed: pip uninstall -y onnxruntime; "
        "pip install 'optc[onnxruntime-gpu]'"
    )


def test_the_gpu_package_runs_engines_for_both(having) -> None:  # type: ignore[no-untyped-def]
    having(onnxruntime_gpu="1.32.0")
    assert packages.problem("cpu") == packages.problem("cuda") == ""


def test_old_releases_are_refused(having) -> None:  # type: ignore[no-untyped-def]
    having(onnxruntime="1.9.0")
    assert packages.problem("cpu") == (
        "onnxruntime 1.9.0 is too old: pip install -U 'onnxruntime>=1.31'"
    )
