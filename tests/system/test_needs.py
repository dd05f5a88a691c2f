"""Commands that need the compile-time packages."""

from __future__ import annotations

from typing import Any

import pytest

from optc.errors import UnavailableError
from optc.system.needs import compile_packages, serve_packages


def lacking(name: str | None, packages: Any = compile_packages) -> None:
    with packages():
        raise ModuleNotFoundError("no module", name=name)


@pytest.mark.parametrize(
    ("name", "packages", "extra"),
    [
        ("torch", compile_packages, "compile"),
        ("onnx.helper", compile_packages, "compile"),
        ("starlette.routing", serve_packages, "serve"),
    ],
)
def test_a_missing_package_says_how_to_get_it(name: str, packages: Any, extra: str) -> None:
    with pytest.raises(UnavailableError) as caught:
        lacking(name, packages)
    assert caught.value.message == f"the package {name!r} is not installed"
    assert caught.value.hint == f"pip install 'optc[{extra}]'"


@pytest.mark.parametrize("name", ["optc.absent", None])
def test_a_missing_module_of_optc_is_a_bug(name: str | None) -> None:
    with pytest.raises(ModuleNotFoundError):
        lacking(name)
