"""examples/ci/compile.yml: a workflow, whose commands run as they stand on a stub of the compiler.

Lines that begin with ``optc`` run in this process, all others in bash; as on the runner, the first
one that fails ends the job.
"""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
import yaml

from optc.artifact.artifact import Artifact
from tests.artifact.trust.keys import write_keys
from tests.cli.commands.compile.test_compile_gates import fake_gates
from tests.cli.conftest import Optc
from tests.how_to import ROOT
from tests.support.stub import StubBackend

__all__ = ["fake_gates"]

FILE = ROOT / "examples/ci/compile.yml"
Workflow = dict[Any, Any]


@dataclass
class Runner:
    """Runs the steps of the job in a folder of its own, and stops at the first that fails."""

    optc: Optc
    folder: Path
    environment: dict[str, str]
    ran: list[str] = field(default_factory=list)

    def run(self) -> tuple[int, str]:
        """Exit code of the job, and name of the step that it ended with."""
        for step in job()["steps"]:
            for line in step.get("run", "").splitlines():
                code = self._line(line)
                if code:
                    return code, step["name"]
                self.ran.append(line.split()[0])
        return 0, ""

    def _line(self, line: str) -> int:
        if not line.startswith("optc "):
            done = subprocess.run(
                ["bash", "-ec", line],
                cwd=self.folder,
                env=os.environ | self.environment,
                check=False,
            )
            return done.returncode
        with pytest.MonkeyPatch.context() as patch:
            patch.chdir(self.folder)
            for name, value in self.environment.items():
                patch.setenv(name, value)
            words = [os.path.expandvars(word) for word in shlex.split(line)]
            return self.optc(*words[1:]).code


def workflow() -> Workflow:
    found: Workflow = yaml.safe_load(FILE.read_text(encoding="utf-8"))
    return found


def job() -> Workflow:
    (found,) = workflow()["jobs"].values()
    return dict(found)


def latest(runner: Runner) -> Path:
    return (Path(runner.environment["STORE"]) / "latest").resolve()


@pytest.fixture
def runner(
    optc: Optc,
    stub: StubBackend,
    quick_import: None,
    tiny_model: Path,
    fake_gates: dict[str, float | None],
    tmp_path: Path,
) -> Runner:
    """A machine whose store has an artifact; its gates say a KL of 0.001."""
    private, public = write_keys(tmp_path)
    fake_gates["kl_mean"] = 0.001
    (tmp_path / "store").mkdir()
    (tmp_path / "held-out.txt").write_text("def f(x):\n    return x\n" * 40)
    (tmp_path / "work").mkdir()
    first = tmp_path / "store/first"
    assert optc("compile", tiny_model, "-o", first).code == 0
    (tmp_path / "store/latest").symlink_to("first")
    environment = {
        "MODEL": str(tiny_model),
        "TEXT": str(tmp_path / "held-out.txt"),
        "STORE": str(tmp_path / "store"),
        "KEY": str(private),
        "PUBLIC": str(public),
        "GITHUB_RUN_ID": "7",
        "GITHUB_STEP_SUMMARY": str(tmp_path / "summary.md"),
    }
    assert set(job()["env"]) < set(environment)
    return Runner(optc, tmp_path / "work", environment)


def test_the_workflow_is_one() -> None:
    text = FILE.read_text(encoding="utf-8")
    assert len(text.splitlines()) <= 25
    found = workflow()
    assert set(found) == {"name", True, "jobs"}  # YAML 1.1 reads `on` as a truth value
    assert {"schedule", "workflow_dispatch"} == set(found[True])
    assert set(job()) == {"runs-on", "env", "steps"}
    for step in job()["steps"]:
        assert ("run" in step) != ("uses" in step)
        assert set(step) <= {"name", "run", "uses", "with", "if"}


def schema_errors(workflow: Path) -> str:
    """What the schema of GitHub's workflows finds wrong, by a reader of YAML 1.2; empty is none."""
    pytest.importorskip("check_jsonschema")
    command = (sys.executable, "-m", "check_jsonschema", "--builtin-schema")
    done = subprocess.run(
        [*command, "vendor.github-workflows", workflow], capture_output=True, text=True, check=False
    )
    return "" if done.returncode == 0 else done.stdout + done.stderr


def test_the_schema_of_workflows_takes_it(tmp_path: Path) -> None:
    assert schema_errors(FILE) == ""
    bad = tmp_path / "bad.yml"
    text = FILE.read_text(encoding="utf-8").replace("runs-on", "run-on").replace("cron:", "crone:")
    bad.write_text(text)
    found = schema_errors(bad)
    assert "'runs-on' is a required property" in found
    assert "'cron' is a required property" in found


def test_a_good_artifact_is_signed_and_kept(
    runner: Runner, fake_gates: dict[str, float | None]
) -> None:
    fake_gates["kl_mean"] = 0.00105
    assert runner.run() == (0, "")
    assert runner.ran == ["optc"] * 4 + ["cp", "ln", "mv"]
    assert latest(runner).name == "7"
    Artifact.open(latest(runner))
    assert (latest(runner) / "model.sig").is_file()
    assert (latest(runner).with_name("first") / "manifest.json").is_file()
    for name in ("gates.xml", "diff.xml"):
        root = ElementTree.parse(runner.folder / name).getroot()
        assert (root.attrib["failures"], root.attrib["tests"] > "0") == ("0", True)
    assert "passed" in Path(runner.environment["GITHUB_STEP_SUMMARY"]).read_text("utf-8")


Break = Callable[[Runner, dict[str, "float | None"], pytest.MonkeyPatch], object]


def _no_summary(runner: Runner, gates: Any, patch: Any) -> None:
    runner.environment["GITHUB_STEP_SUMMARY"] = "absent/summary.md"


def _a_gate(runner: Runner, gates: dict[str, float | None], patch: Any) -> None:
    gates["kl_mean"] = 0.5


def _worse_than_before(runner: Runner, gates: dict[str, float | None], patch: Any) -> None:
    gates["kl_mean"] = 0.0012


def _damaged_before(runner: Runner, gates: Any, patch: Any) -> None:
    weights = latest(runner) / "engines/target/weights.bin"
    weights.write_bytes(b"\x01" + weights.read_bytes()[1:])


def _no_key(runner: Runner, gates: Any, patch: Any) -> None:
    runner.environment["KEY"] = runner.environment["PUBLIC"]


def _no_extra(runner: Runner, gates: Any, patch: pytest.MonkeyPatch) -> None:
    patch.setitem(sys.modules, "cryptography", None)


def _another_key(runner: Runner, gates: Any, patch: Any) -> None:
    runner.environment["PUBLIC"] = str(write_keys(runner.folder, "other")[1])


def _no_room(runner: Runner, gates: Any, patch: Any) -> None:
    (Path(runner.environment["STORE"]) / "7").write_text("a file is in the way")


@pytest.mark.parametrize(
    ("breaks", "code", "step"),
    [
        (_no_summary, 2, "compile and gate"),
        (_a_gate, 4, "compile and gate"),
        (_worse_than_before, 4, "compare"),
        (_damaged_before, 5, "compare"),
        (_no_key, 2, "sign"),
        (_no_extra, 3, "sign"),
        (_another_key, 5, "sign"),
        (_no_room, 1, "upload"),
    ],
)
def test_a_bad_case_ends_the_job_and_the_last_artifact_stays(
    runner: Runner,
    fake_gates: dict[str, float | None],
    monkeypatch: pytest.MonkeyPatch,
    breaks: Break,
    code: int,
    step: str,
) -> None:
    breaks(runner, fake_gates, monkeypatch)
    assert runner.run() == (code, step)
    assert latest(runner).name == "first"
    gates = runner.folder / "gates.xml"
    if breaks is _a_gate:
        assert ElementTree.parse(gates).getroot().attrib["failures"] == "1"
        assert not (runner.folder / "today").exists()
