"""The READMEs of the kernels: every kernel has a row, with its config's fields and its function."""

from __future__ import annotations

import re
from dataclasses import fields
from importlib import import_module
from pathlib import Path

import pytest

from optc.backends.tvm.compiling.emit import KERNELS

FOLDER = Path(__file__).parents[4] / "backends/tvm/kernels"
FOLDERS = sorted(path.name for path in FOLDER.iterdir() if (path / "__init__.py").is_file())


@pytest.mark.parametrize("kernel", sorted(KERNELS))
def test_every_kernel_has_a_row(kernel: str) -> None:
    module, config, function = KERNELS[kernel]
    folder, name = module.split(".")
    names = ", ".join(
        f.name
        for f in fields(getattr(import_module(f"optc.backends.tvm.kernels.{module}"), config))
    )
    page = (FOLDER / folder / "README.md").read_text(encoding="utf-8")
    assert f"| `{name}` | `{config}({names})`, `{function}` | " in page


@pytest.mark.parametrize("folder", FOLDERS)
def test_every_folder_has_a_page(folder: str) -> None:
    assert f"({folder}/README.md)" in (FOLDER / "README.md").read_text(encoding="utf-8")
    page = (FOLDER / folder / "README.md").read_text(encoding="utf-8")
    assert re.findall(r"^## (.*)", page, re.M)[-2:] == ["Who calls whom", "Invariants"]
    for row in re.findall(r"^\| `(\w+)` \|", page, re.M):
        assert (FOLDER / folder / f"{row}.py").is_file()
