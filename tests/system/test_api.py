"""`optc.compile` and `optc.plan` where only the runtime is installed."""

from __future__ import annotations

import subprocess
import sys

import pytest

#: Hides packages as though they were not installed.
HIDE = """
import sys
class Hide:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in HIDDEN:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
sys.meta_path.insert(0, Hide())
import optc
"""
CALL = """
try:
    getattr(optc, NAME)("a-model")
except optc.UnavailableError as error:
    print(error)
"""
#: Packages of the extra `compile` that optc imports.
COMPILER = ["onnx_ir", "torch", "transformers", "pydantic", "yaml", "psutil", "onnx"]


def run(name: str, hidden: list[str]) -> str:
    code = f"HIDDEN, NAME = {hidden!r}, {name!r}\n{HIDE}{CALL}"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=120
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


@pytest.mark.parametrize("name", ["compile", "plan", "plan_ladder"])
def test_without_the_compilers_packages_an_error_says_what_to_install(name: str) -> None:
    said = run(name, COMPILER)
    assert "is not installed" in said
    assert "pip install 'optc[compile]'" in said


@pytest.mark.parametrize("package", ["onnx_ir", "yaml"])
def test_a_single_package_is_named(package: str) -> None:
    assert f"the package '{package}' is not installed" in run("compile", [package])
