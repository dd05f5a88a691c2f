"""``optc eval --tasks`` and ``python -m optc.proof.lm_eval``, end to end over local data."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from optc.errors import OptcError
from optc.proof.lm_eval.tasks import check_task
from tests.proof.lm_eval.conftest import MODEL, ROOT
from tests.support.cost import command

TASKS = "examples/tasks"


def run(*arguments: object, module: str = "optc") -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", module, *map(str, arguments)],
        capture_output=True,
        text=True,
        check=False,
        cwd=ROOT,
    )


@pytest.mark.long
def test_tasks_give_the_results_of_transformers_within_the_loss_of_quantization(
    drafting_artifact: Callable[[str], Path],
) -> None:
    pytest.importorskip("lm_eval", reason="lm-eval is not installed (pip install 'optc[eval]')")
    from lm_eval.evaluator import simple_evaluate
    from lm_eval.tasks import TaskManager

    names = ["code_choices", "code_lines", "code_text"]
    done = run(
        *("eval", drafting_artifact("int8"), "--tasks", ",".join(names)),
        *("--task-folder", TASKS, "--json"),
    )
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)["tasks"]
    expected = simple_evaluate(
        model="hf",
        model_args={"pretrained": str(MODEL), "dtype": "float32"},
        tasks=names,
        device="cpu",
        batch_size=8,
        task_manager=TaskManager(include_path=TASKS, include_defaults=False),
        bootstrap_iters=0,
    )["results"]
    within = {"acc": 0.08, "acc_norm": 0.08, "exact_match": 0.08, "byte_perplexity": 0.03}
    for name in names:
        assert found[name]["documents"] == (40 if name == "code_lines" else 39)
        for metric, one in found[name]["metrics"].items():
            want = expected[name][f"{metric},none"]
            assert one["value"] == pytest.approx(want, abs=within[metric]), (name, metric)
    assert found["code_choices"]["metrics"].keys() == {"acc", "acc_norm"}
    assert found["code_text"]["metrics"]["byte_perplexity"]["stderr"] is None


@pytest.mark.long
def test_lm_evals_own_command_knows_the_model(drafting_artifact: Callable[[str], Path]) -> None:
    pytest.importorskip("lm_eval", reason="lm-eval is not installed (pip install 'optc[eval]')")
    done = run(
        *("--model", "optc", "--model_args", f"path={drafting_artifact('int8')}"),
        *("--tasks", "code_lines", "--include_path", TASKS, "--limit", 4),
        module="optc.proof.lm_eval",
    )
    assert done.returncode == 0, done.stderr
    assert "|code_lines|" in done.stdout
    wrong = run(
        *("--model", "optc", "--model_args", "path=nowhere", "--tasks", "code_lines"),
        *("--include_path", TASKS),
        module="optc.proof.lm_eval",
    )
    assert wrong.returncode == 2
    assert wrong.stderr.splitlines()[-1].startswith("error: nowhere: ")


ABSENT = {
    "code_chioces": "lm-eval knows no task 'code_chioces' (did you mean 'code_choices'?",
    "absent_data": "the data of the task 'absent_data' is not on this machine: ",
    "absent_hub": "the data of the task 'absent_hub' is not on this machine: ",
    "absent_package": "the task 'absent_package' needs the package 'no_such_package'",
}


def test_what_is_absent_is_one_error(tmp_path: Path) -> None:
    pytest.importorskip("lm_eval", reason="lm-eval is not installed (pip install 'optc[eval]')")
    from lm_eval.tasks import TaskManager

    source = (ROOT / TASKS / "code_choices.yaml").read_text()
    (tmp_path / "code_choices.yaml").write_text(source)
    for name, changes in {
        "absent_data": {"examples/tasks/code_choices.jsonl": "nowhere.jsonl"},
        "absent_hub": {"dataset_path: json": "dataset_path: some/where", "{test: ": "{x: "},
        "absent_package": {"test_split: test": "process_docs: !function lib.docs"},
    }.items():
        text = source.replace("task: code_choices", f"task: {name}")
        for old, new in changes.items():
            assert old in text
            text = text.replace(old, new)
        (tmp_path / f"{name}.yaml").write_text(text)
    (tmp_path / "lib.py").write_text("import no_such_package\n")
    manager = TaskManager(include_path=str(tmp_path), include_defaults=False)
    for task, message in ABSENT.items():
        with pytest.raises(OptcError) as error:
            check_task(task, manager)
        assert str(error.value).startswith(f"--tasks: {message}")
        assert error.value.exit_code == (3 if task == "absent_package" else 2)
    check_task("code_choices", manager)


def test_data_that_is_absent_ends_the_command(
    drafting_artifact: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """In this process, where lm-eval and its packages are imported already; they read once whether
    they may fetch."""
    pytest.importorskip("lm_eval", reason="lm-eval is not installed (pip install 'optc[eval]')")
    for name in ("datasets.config", "huggingface_hub.constants"):
        monkeypatch.setattr(f"{name}.HF_HUB_OFFLINE", True)
    artifact = drafting_artifact("int8")
    error = command.optc("eval", artifact, "--tasks", "arc_easy", code=2)["error"]
    assert error["where"] == "--tasks"
    assert "the data of the task 'arc_easy' is not on this machine" in error["message"]
    assert "ai2_arc" in error["message"]


def test_the_data_is_what_the_script_writes() -> None:
    spec = importlib.util.spec_from_file_location("make_tasks", ROOT / TASKS / "make.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    before = {path: path.read_bytes() for path in (ROOT / TASKS).glob("*.jsonl")}
    module.main()
    assert {path: path.read_bytes() for path in before} == before
    assert len(before) == 2
