"""An install has all packages, from a checkout and from a source archive without links."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
LINKS = ("passes", "backends", "recipes")


@pytest.fixture(scope="module")
def checkout(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folders that setuptools looks at to find packages."""
    root = tmp_path_factory.mktemp("checkout")
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard", "*__init__.py"]
    listed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    for name in listed.stdout.splitlines():
        if (ROOT / name).exists():
            (root / name).parent.mkdir(parents=True, exist_ok=True)
            (root / name).touch()
    shutil.copy(ROOT / "setup.py", root)
    return root


def named(root: Path, expression: str) -> Any:
    """What an expression gives in setup.py, in a process of its own: setuptools must come before
    any import of distutils."""
    code = "import json, runpy, sys; names = runpy.run_path(sys.argv[1], run_name='setup'); "
    command = [sys.executable, "-c", code + "print(json.dumps(eval(sys.argv[2], names)))"]
    done = subprocess.run(
        [*command, str(root / "setup.py"), expression], capture_output=True, text=True, check=True
    )
    return json.loads(done.stdout)


def layout(root: Path) -> tuple[set[str], dict[str, str]]:
    packages, places = named(root, "layout()")
    assert len(packages) == len(set(packages))
    return set(packages), places


def folder(root: Path, package: str, places: dict[str, str]) -> Path:
    """The folder that setuptools takes a package from: by the longest name that has a place."""
    parts = package.split(".")
    for count in range(len(parts), 0, -1):
        place = places.get(".".join(parts[:count]))
        if place is not None:
            return root.joinpath(place, *parts[count:])
    return root.joinpath(places.get("", "."), *parts)


def test_packages_are_the_same_with_links_and_without(checkout: Path) -> None:
    found = {}
    for way in ("links", "texts"):
        for name in LINKS:
            link = checkout / "optc" / name
            link.unlink(missing_ok=True)
            if way == "links":
                link.symlink_to(f"../{name}")
            else:
                link.write_text(f"../{name}")
        found[way], places = layout(checkout)
        for package in found[way]:
            assert (folder(checkout, package, places) / "__init__.py").is_file(), package
    assert found["links"] == found["texts"]
    for package in ("optc", "optc.passes.quantize", "optc.backends.tvm.compiling", "optc.recipes"):
        assert package in found["texts"]
    assert not any(one.split(".")[0] in ("tests", "benchmarks", *LINKS) for one in found["links"])


def test_links_are_those_of_the_repository() -> None:
    linked = {path.name for path in (ROOT / "optc").iterdir() if path.is_symlink()}
    assert linked == set(LINKS) == set(named(ROOT, "LINKED"))
