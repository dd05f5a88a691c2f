"""openai-python's own tests of its API's resources, unmodified, against a server.

They were made for a mock that takes everything: openai_python.toml has what a server refuses."""

from __future__ import annotations

import os
import subprocess
import sys
import tarfile
from pathlib import Path
from xml.etree import ElementTree

import pytest

from tests.serve.suites.expected import differing, read_expected
from tests.serve.suites.fetched import pip

openai = pytest.importorskip("openai", reason="the client of OpenAI is not installed")

_RESOURCES = "tests/api_resources"
#: Of resources that the server has; those of others ask for routes that it has not.
MODULES = (
    "test_completions.py",
    "chat",
    "responses",
    "test_responses.py",
    "test_models.py",
    "test_files.py",
    "test_batches.py",
    "test_embeddings.py",
    "audio/test_transcriptions.py",
    "audio/test_translations.py",
)
#: As many passed when the list was made. Newer releases have more.
LEAST = 260


@pytest.fixture(scope="module")
def sources(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The source release of the client that is installed, with what its tests need beside it."""
    folder = tmp_path_factory.mktemp("openai")
    version = openai.__version__
    pip("download", "--no-deps", "--no-binary=:all:", "-d", folder, f"openai=={version}")
    pip("install", "--no-deps", "--target", folder / "packages", "pytest-asyncio")
    with tarfile.open(folder / f"openai-{version}.tar.gz") as archive:
        archive.extractall(folder, filter="data")
    return folder / f"openai-{version}"


@pytest.mark.long
def test_its_tests_pass_but_for_what_the_list_says(url: str, sources: Path) -> None:
    modules = [f"{_RESOURCES}/{name}" for name in MODULES]
    variables = {
        "TEST_API_BASE_URL": f"{url}/v1",
        "PYTHONPATH": str(sources.parent / "packages"),
        "PATH": os.environ["PATH"],
    }
    report = sources.parent / "report.xml"
    done = subprocess.run(
        [
            *(sys.executable, "-m", "pytest", "-n", "0", "-p", "no:cacheprovider"),
            # Without those of another HTTP client: they ask the server the same.
            *("--tb=line", "-k", "loose or strict", f"--junitxml={report}", *modules),
        ],
        cwd=sources,
        env=variables,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode in (0, 1), done.stdout[-2000:] + done.stderr[-2000:]
    passed, failed = _read(report)
    assert not differing(failed, read_expected("openai_python.toml"))
    assert len(passed) >= LEAST


def _read(report: Path) -> tuple[list[str], dict[str, str]]:
    """Cases that passed, and messages of those that failed: ``chat.test_x::test_y[loose]``."""
    passed, failed = [], {}
    for case in ElementTree.parse(report).iter("testcase"):
        module, _, kind = case.attrib["classname"].rpartition(".")
        module = module.removeprefix("tests.api_resources.")
        name = f"{module}::{kind}::{case.attrib['name']}"
        wrong = [*case.findall("failure"), *case.findall("error")]
        if wrong:
            failed[name] = wrong[0].attrib.get("message", "")
        elif case.find("skipped") is None:
            passed.append(name)
    return passed, failed
