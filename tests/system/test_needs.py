"""Commands that need the compile-time packages."""

from __future__ import annotations

import pytest

from optc.errors import UnavailableError
from optc.system.needs import compile_packages


def lacking(name: str | None) -> None:
    with compile_packages():
        raise ModuleNotFoundError("no module", name=name)


@pytest.mark.parametrize("name", ["torch", "onnx.helper"])
def test_a_missing_package_says_how_to_get_it(name: str) -> None:
    with pytest.raises(UnavailableError) as caught:
        lacking(name)
    assert caught.value.message == f"the package {name!r} is not installed"
    assert caught.value.hint == "pip install 'optc[compile]'"


@pytest.mark.parametrize("name", ["optc.absent", None])
def test_a_missing_module_of_optc_is_a_bug(name: str | None) -> None:
    with pytest.raises(ModuleNotFoundError):
        lacking(name)
