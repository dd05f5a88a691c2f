"""The wheel and the source archive: what they hold, what they say, and what they need."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from collections.abc import Iterable
from email.message import Message
from email.parser import Parser
from importlib.metadata import PackageNotFoundError, requires
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tests.support.shared import made_once

ROOT = Path(__file__).parents[2]
CPU, GPU = "onnxruntime", "onnxruntime-gpu"
BUILD = "from setuptools import build_meta as b; print(b.build_{}('out'))"
#: Weights are of no use here, and many.
LEFT_OUT = "examples/models/"
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]


def build(root: Path, kind: str) -> Path:
    (root / "out").mkdir(exist_ok=True)
    command = [sys.executable, "-c", BUILD.format(kind)]
    done = subprocess.run(command, cwd=root, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return root / "out" / done.stdout.split()[-1]


def make(folder: Path) -> tuple[Path, Path, Path]:
    """A source archive, and wheels of the checkout and of that archive."""
    checkout = folder / "checkout"
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard"]
    listed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    for name in listed.stdout.splitlines():
        if name.startswith(LEFT_OUT) or not (ROOT / name).exists():
            continue
        (checkout / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, checkout / name, follow_symlinks=False)
    archive, wheel = build(checkout, "sdist"), build(checkout, "wheel")
    with tarfile.open(archive) as opened:
        opened.extractall(folder, filter="data")
    (unpacked,) = folder.glob("optc-*")
    return archive, wheel, build(unpacked, "wheel")


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path, Path]:
    return made_once(tmp_path_factory, "distribution", make)


def names_of(wheel: Path) -> set[str]:
    with zipfile.ZipFile(wheel) as opened:
        return {name for name in opened.namelist() if not name.endswith(".dist-info/RECORD")}


def metadata(wheel: Path) -> Message:
    with zipfile.ZipFile(wheel) as opened:
        (name,) = (one for one in opened.namelist() if one.endswith(".dist-info/METADATA"))
        return Parser().parsestr(opened.read(name).decode())


def test_a_source_archive_gives_the_same_wheel(built: tuple[Path, Path, Path]) -> None:
    _, wheel, again = built
    assert names_of(wheel) == names_of(again)
    kinds = {Path(name).suffix for name in names_of(wheel)}
    assert kinds >= {".py", ".yaml", ".json", ".jsonl", ".c", ".h", ".cuh", ".css", ".typed"}


def test_a_source_archive_has_documentation_and_no_tests(built: tuple[Path, Path, Path]) -> None:
    archive, _, _ = built
    with tarfile.open(archive) as opened:
        found = {name.partition("/")[2] for name in opened.getnames()}
    listed = subprocess.run(
        ["git", "ls-files", "docs"], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert found >= set(listed.stdout.splitlines())
    assert found >= {"README.md", "CHANGELOG.md", "CONTRIBUTING.md", "LICENSE", "pyproject.toml"}
    roots = {name.partition("/")[0] for name in found}
    assert not roots & {"tests", "benchmarks", "examples", "artifacts"}


def test_an_index_page_says_who_what_and_where_it_runs(built: tuple[Path, Path, Path]) -> None:
    said = metadata(built[1])
    assert said["Author"]
    assert said["License-Expression"] == "Apache-2.0"
    classifiers = said.get_all("Classifier", [])
    systems = [one for one in classifiers if one.startswith("Operating System")]
    assert systems == ["Operating System :: POSIX :: Linux"]
    assert any(one.startswith("Topic") for one in classifiers)
    assert said["Description-Content-Type"] == "text/markdown"


def test_links_on_an_index_page_lead_somewhere(built: tuple[Path, Path, Path]) -> None:
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    description = metadata(built[1]).get_payload()
    links = re.findall(r"\]\(([^)]+)\)", description)
    assert all(re.match("https?://|#", link) for link in links), links
    assert description.startswith("# optc\n")
    assert "docs/runtime.md has chat, coroutines" in description
    assert len(description.splitlines()) == len(readme.splitlines())


def needed(extras: Iterable[str]) -> set[str]:
    """Packages that an install with these extras asks for, by the project's own metadata."""
    found = {canonicalize_name(Requirement(text).name) for text in PROJECT["dependencies"]}
    waiting, seen = list(extras), set()
    while waiting:
        extra = waiting.pop()
        if extra in seen:
            continue
        seen.add(extra)
        for text in PROJECT["optional-dependencies"][extra]:
            one = Requirement(text)
            if one.name == "optc":
                waiting += one.extras
            else:
                found.add(canonicalize_name(one.name))
    return found


def brought(packages: set[str]) -> set[str]:
    """These and what they need in turn, as far as they are installed here."""
    found, waiting = set(packages), list(packages)
    while waiting:
        try:
            texts = requires(waiting.pop()) or []
        except PackageNotFoundError:
            continue
        for one in map(Requirement, texts):
            name = canonicalize_name(one.name)
            if (one.marker is None or one.marker.evaluate({"extra": ""})) and name not in found:
                found.add(name)
                waiting.append(name)
    return found


@pytest.mark.parametrize("other", sorted(PROJECT["optional-dependencies"]))
@pytest.mark.parametrize("extra", ["compile-gpu", "onnxruntime-gpu"])
def test_extras_for_gpus_bring_one_onnx_runtime(extra: str, other: str) -> None:
    """With every other extra but those that bring the package for CPUs."""
    for_cpus = CPU in needed([other])
    assert for_cpus == (other in ("compile", "onnxruntime"))
    packages = brought(needed([extra, other]))
    assert GPU in packages
    assert (CPU in packages) == for_cpus


def test_both_compilers_are_the_same_but_for_onnx_runtime() -> None:
    assert needed(["compile"]) - {CPU} == needed(["compile-gpu"]) - {GPU}
    assert CPU in needed(["compile"])


@pytest.mark.parametrize("page", ["docs/how-to/ship-for-a-gpu.md", "docs/onnxruntime.md"])
def test_pages_name_the_extra_that_can_be_installed(page: str) -> None:
    assert "pip install 'optc[compile-gpu]'" in (ROOT / page).read_text(encoding="utf-8")
