"""docs/cli.md lists the JSON keys, kinds of errors and exit codes that there are, and no others.

Every command runs on toy engines; what takes long (an artifact of the stub) is made once.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable, Iterator, Mapping, Set
from pathlib import Path
from typing import Any

import pytest

from optc import errors, registry
from optc.cli import main
from optc.cli.commands.serving.replay import ChangedError
from optc.cli.main import COMMANDS
from optc.cli.streams import OutputError, ReaderLeftError
from optc.compiling.ladder import few_windows
from optc.errors import OptcError
from optc.proof.bench.slo import ObjectivesError
from optc.proof.bench.utilization import DisturbedError
from optc.proof.conditions.verdicts import ConditionsError
from optc.runtime.speculative.planning.costs_cache import CostsCache
from tests.artifact.toy import forge
from tests.artifact.trust.keys import write_keys
from tests.cli.commands.test_measure_commands import MeasurableStub
from tests.cli.conftest import Optc
from tests.proof.simulate.fakes import step_times
from tests.runtime.support.artifacts import ToyBackend, write_artifact

DOCS = Path(__file__).parents[2] / "docs"
#: Keys whose values have a form of their own, which other pages describe.
FREE = {
    *("manifest", "report", "settings", "details", "facts", "recipes", "options", "ceilings"),
    *("ladder", "decisions"),
}


#: Keys of results in tasks, which need lm-eval.
OF_TASKS = {"metrics", "value", "stderr", "documents", "fewshot", "version"}


def rows() -> dict[str, str]:
    """The text of the JSON table by its first column."""
    section = (DOCS / "cli.md").read_text().partition("## JSON")[2].partition("\n## ")[0]
    found: dict[str, str] = {}
    for line in section.splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|", 1)]
        if line.startswith("|") and len(cells) == 2:
            found |= dict.fromkeys(re.findall(r"`([\w-]+)`", cells[0]) or [cells[0]], cells[1])
    return found


def names(text: str) -> set[str]:
    """Words that stand in code spans."""
    return {word for span in re.findall(r"`([^`]*)`", text) for word in re.findall(r"\w+", span)}


def keys(value: Any) -> Iterator[str]:
    """All keys of a JSON value, but for those below `FREE`."""
    if isinstance(value, Mapping):
        for key, inner in value.items():
            yield key
            if key not in FREE:
                yield from keys(inner)
    elif isinstance(value, list):
        for item in value:
            yield from keys(item)


def spelled(value: dict[str, Any]) -> dict[str, Any]:
    """Without the frame that every object has."""
    return {key: inner for key, inner in value.items() if key not in ("schema", "warnings")}


@pytest.fixture
def listed(optc: Optc) -> Callable[..., list[dict[str, Any]]]:
    def call(*lines: tuple[object, ...]) -> list[dict[str, Any]]:
        return [spelled(optc(*line, "--json").json) for line in lines]

    return call


TEXT = ("--prompt", "ab", "--max-tokens", "3")
BENCH = ("--prompt-tokens", "8", "--output-tokens", "4", "--concurrency", "2", "--rounds", "1")


SPEED = ("--speed", "--prompt-tokens", "8", "--output-tokens", "2", "--rounds", "1")


def write_another(artifact: Path, output: Path) -> Path:
    """A copy of the artifact that says that others compiled it, by another recipe."""
    shutil.copytree(artifact, output)

    def change(manifest: dict[str, Any]) -> None:
        manifest["packages"]["optc"] = "0.0.1"
        manifest["passes"] = manifest["passes"][1:]
        manifest["recipe"]["name"] = "other"

    forge(output, change)
    return output


@pytest.mark.parametrize(
    "command",
    sorted(
        set(COMMANDS)
        - {"bench", "bench-serve", "tune", "compile", "chat", "serve", "replay", "distill", "qat"}
        - {"export", "dynamo-worker"}
    ),
)
def test_keys_of_commands(
    optc: Optc,
    listed: Callable[..., list[dict[str, Any]]],
    artifact: Path,
    tiny_model: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    command: str,
) -> None:
    text = tmp_path / "t.txt"
    text.write_text("some words to be scored")
    (tmp_path / "in.jsonl").write_text('"ab"\n')
    another = write_another(artifact, tmp_path / "another")
    patch = tmp_path / "patch"
    files = ("--input", tmp_path / "in.jsonl", "--output", tmp_path / "out.jsonl")
    lines: dict[str, list[tuple[object, ...]]] = {
        "plan": [
            ("plan", tiny_model, "--recipe", "fp32", "--backends", "stub"),
            ("plan", tiny_model, "--recipe", "auto", "--ladder", "fp32"),
        ],
        "run": [
            ("run", artifact, *TEXT),
            ("run", artifact, *TEXT, "--prompt", "b"),
            ("run", artifact, *TEXT, "--speculate", "ngram"),
            ("run", artifact, *TEXT, "--choice", "a"),
            ("run", artifact, *TEXT, "--beam-width", "2"),
            ("run", artifact, *TEXT, "--n", "2", "--logprobs", "1", "--prompt-logprobs", "0"),
            ("run", artifact, *files, "--max-tokens", "3"),
        ],
        "eval": [
            ("eval", artifact, "--text", text),
            ("eval", artifact, "--text", text, "--reference", tiny_model),
        ],
        "inspect": [("inspect", artifact)],
        "report": [("report", artifact, "-o", tmp_path / "a.html", "--no-measure")],
        "passes": [("passes",), ("passes", "smooth")],
        "verify": [("verify", artifact)],
        "list": [("list",), ("list", f"oci:{tmp_path / 'layout'}")],
        "tag": [("tag", f"oci:{tmp_path / 'layout'}", "another")],
        "untag": [("untag", f"oci:{tmp_path / 'layout'}")],
        "prune": [("prune", f"oci:{tmp_path / 'layout'}")],
        "rm": [("rm", another)],
        "push": [("push", artifact, f"oci:{tmp_path / 'layout'}")],
        "pull": [("pull", f"oci:{tmp_path / 'layout'}", "-o", tmp_path / "pulled")],
        "patch": [("patch", artifact, another, "-o", patch, "--no-gates")],
        "apply": [("apply", patch, artifact, "-o", tmp_path / "made")],
        "sign": [("sign", artifact, "--key", write_keys(tmp_path)[0])] if command == "sign" else [],
        "diff": [
            ("diff", artifact, artifact, "--require", "bytes>0"),
            ("diff", artifact, another, *SPEED),
        ],
    }
    # Of --gates and --key; of a model with a chat template.
    others = {
        "verify": {"gates", "signature"},
        "pull": {"moved_bytes"},
        "targets": {"fetched"},  # with --fetch
        "eval": {"answers", "decisions", "tasks", *OF_TASKS},
    }
    elsewhere = frozenset(others.get(command, ()))
    # The passes; the conditions.
    if command in ("pull", "list", "tag", "untag", "prune"):
        optc("push", artifact, f"oci:{tmp_path / 'layout'}")
    if command == "apply":
        optc(*lines["patch"][0])
    monkeypatch.setenv("OPTC_STORE", str(artifact.parent))
    more = {"plan": rows()["compile"], "diff": rows()["bench"]}.get(command, "")
    check(command, listed(*lines.get(command, [(command,)])), more, elsewhere)


#: Options that add keys to what a compile says.
COMPILES = ((), ("--bisect", "--force"), ("--draft", "self:bits=2", "--force"))


def test_keys_of_compile(
    compile_tiny: Optc, measured: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(few_windows, "measure_few", lambda *_: {})
    found = [spelled(compile_tiny(*more, "--json").json) for more in COMPILES]
    chosen = ("--recipe", "auto", "--ladder", "fp32", "--force")
    found.append(spelled(compile_tiny(*chosen, "--json", gates=True).json))
    check("compile", found)


def test_keys_of_bench(
    optc: Optc,
    quick_import: None,
    tiny_model: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    stub = MeasurableStub()
    monkeypatch.setattr(registry, "backend_names", lambda: ("tvm",))
    monkeypatch.setattr(registry, "backend", lambda name: stub)
    path = tmp_path / "a"
    assert optc("compile", tiny_model, "-o", path, "--recipe", "fp32", "--no-gates").code == 0
    traffic = "poisson:rate=500,requests=5,prompt=4,output=4"
    objectives = ("--slo", "ttft=100s", "--price-per-hour", "2")
    calls = (BENCH, ("--profile",), ("--workload", traffic, *objectives))
    found = [spelled(optc("bench", path, *call, "--json").json) for call in calls]
    (tmp_path / "b.json").write_text(optc("bench", path, *BENCH, "--json").out)
    judged = ("--compare", tmp_path / "b.json", "--require", "mbu>0")
    found.append(spelled(optc("bench", path, *BENCH, *judged, "--json").json))
    more = (DOCS / "bench.md").read_text() + rows()["run"]  # the engine
    check("bench", found, more)


def test_keys_of_tune(optc: Optc, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPTC_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(registry, "backend", lambda name: ToyBackend())
    written = write_artifact(tmp_path / "toy")
    times = step_times(step=0.005, row=0.001).to_json()
    CostsCache().write("step-times.v3", f"{written.digest}/target", 1, times)
    call = (
        "--slo",
        "ttft=200ms",
        "--threads",
        "1",
        "--rate",
        "3",
        "--prompt",
        "9",
        "--output",
        "2",
    )
    found = spelled(optc("tune", written.path, *call, "--json").json)
    assert list(found["step_time_error"]) == [str(written.path)]
    found["step_time_error"] = 0.0
    check("tune", [found], (DOCS / "bench.md").read_text())


@pytest.mark.parametrize("command", ["distill", "qat"])
def test_keys_of_training(
    optc: Optc, quick_import: None, tiny_model: Path, tmp_path: Path, command: str
) -> None:
    text = tmp_path / "t.txt"
    text.write_text("some words to be trained on, and others to be judged by; " * 20)
    call = (
        "--text",
        text,
        "--tokens",
        "64",
        "--window",
        "16",
        "--batch",
        "2",
        "-o",
        tmp_path / "o",
    )
    more = ("--recipe", "int4-fast") if command == "qat" else ()
    found = spelled(optc(command, tiny_model, *call, *more, "--threads", "1", "--json").json)
    check(command, [found])


def check(
    command: str,
    found: list[dict[str, Any]],
    more: str = "",
    elsewhere: Set[str] = frozenset(),
) -> None:
    """The row of a command names the keys of its objects, and no others; keys further inside may
    stand in ``more``. Those of ``elsewhere`` are shown by other tests."""
    row = rows()[command]
    assert {key for value in found for key in value} <= names(row), "not in docs/cli.md"
    inner = {key for value in found for key in keys(value)}
    assert inner <= names(row) | names(more), "in no page"
    stated = set(re.findall(r"(?<![\w`.])`(\w+)(?=[`:])", row)) - set(COMMANDS)
    assert stated <= inner | elsewhere, "docs/cli.md lists keys that there are not"


def test_kinds_of_errors_and_exit_codes() -> None:
    kinds = {error.kind: error.exit_code for error in _every_error()}
    assert set(kinds) - {"error", "output"} <= names(rows()["an error"])  # never as JSON
    section = (DOCS / "cli.md").read_text().partition("## Exit codes")[2].partition("\n## ")[0]
    table = re.findall(r"^\| ([\d, ]+) \|", section, re.MULTILINE)
    listed = {int(code) for cell in table for code in cell.split(",")}
    assert listed == {0, *(error.exit_code for error in _every_error())}


def _every_error() -> list[type[OptcError]]:
    """All errors that optc's commands end with."""
    own = [value for module in (errors, main) for value in vars(module).values()]
    found = [e for e in own if isinstance(e, type) and issubclass(e, OptcError)]
    return [
        *found,
        ConditionsError,
        ObjectivesError,
        ChangedError,
        DisturbedError,
        OutputError,
        ReaderLeftError,
    ]
