"""``optc eval --tasks``: an artifact's results in tasks of lm-eval whose data is local."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from optc.errors import InputError, UnavailableError
from optc.system.needs import eval_packages
from optc.system.suggest import nearest

#: Where Hugging Face's packages are not told otherwise, they fetch nothing.
_OFFLINE = {"HF_HUB_OFFLINE": "1", "HF_DATASETS_OFFLINE": "1"}
#: Bars that nobody sees.
_SILENT = {"TQDM_DISABLE": "1"}
_STDERR = "_stderr"


@dataclass(frozen=True)
class WantedTasks:
    """The tasks to score.

    Attributes:
        names: Tasks, groups or tags of lm-eval, or paths of a task's YAML file.
        folder: Of further tasks; None are lm-eval's own alone.
        limit: Most documents of each task; None is all.
        fewshot: Examples before each question; None is as the task has it.
        chat: Render the prompts with the model's chat template.
    """

    names: tuple[str, ...]
    folder: Path | None = None
    limit: int | None = None
    fewshot: int | None = None
    chat: bool = False


def evaluate_tasks(artifact: Path, wanted: WantedTasks, **serve: Any) -> dict[str, Any]:
    """Results of an artifact.

    Args:
        artifact: Its folder.
        wanted: The tasks.
        **serve: Fields of `optc.ServeSettings`.

    Returns:
        By task: ``metrics`` (by name and filter: ``value`` and ``stderr``, which may be null),
        ``documents``, ``fewshot`` and ``version``.

    Raises:
        InputError: There is no such task, or its data is not on this machine.
        UnavailableError: lm-eval is not installed, or what a task needs besides.
        OptcError: The artifact cannot be loaded.
    """
    with _quietly():
        return _evaluate(artifact, wanted, serve)


@contextmanager
def _quietly() -> Iterator[None]:
    """The environment in which Hugging Face's packages fetch nothing, unless it says otherwise
    already; afterwards as it was."""
    wanted = _OFFLINE if sys.stderr.isatty() else _OFFLINE | _SILENT
    added = [name for name in wanted if name not in os.environ]
    os.environ.update({name: wanted[name] for name in added})
    try:
        yield
    finally:
        for name in added:
            os.environ.pop(name, None)


def _evaluate(artifact: Path, wanted: WantedTasks, serve: Mapping[str, Any]) -> dict[str, Any]:
    with eval_packages():
        from lm_eval.evaluator import simple_evaluate
        from lm_eval.tasks import TaskManager

        from optc.proof.lm_eval.model import OptcLM
    manager = TaskManager(include_path=None if wanted.folder is None else str(wanted.folder))
    for name in wanted.names:
        check_task(name, manager)
    model = OptcLM(str(artifact), **serve)
    with model.engine:
        found = simple_evaluate(
            model=model,
            tasks=list(wanted.names),
            task_manager=manager,
            limit=wanted.limit,
            num_fewshot=wanted.fewshot,
            apply_chat_template=wanted.chat,
            log_samples=False,
        )
    return {name: _figures(name, found) for name in found["results"]}


def check_task(name: str, manager: Any) -> None:
    """Load a task and its data, before the artifact is loaded.

    Raises:
        InputError, UnavailableError: As of `evaluate_tasks`.
    """
    known: Sequence[str] = manager.all_tasks
    if name not in known and not Path(name).is_file():
        like = nearest(name, known)
        hint = "python -m optc.proof.lm_eval ls tasks lists them"
        raise InputError(
            f"lm-eval knows no task {name!r}",
            where="--tasks",
            hint=hint if like is None else f"did you mean {like!r}? {hint}",
        )
    try:
        manager.load([name])
    except ModuleNotFoundError as error:
        raise UnavailableError(
            f"the task {name!r} needs the package {error.name!r}",
            where="--tasks",
            hint=f"pip install {error.name}",
        ) from error
    except (OSError, ValueError) as error:  # as datasets says that there is none
        raise InputError(
            f"the data of the task {name!r} is not on this machine: {_first_line(error)}",
            where="--tasks",
            hint="HF_HUB_OFFLINE=0 HF_DATASETS_OFFLINE=0 lets it be fetched",
        ) from error


def _first_line(error: Exception) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0]


def _figures(name: str, found: Mapping[str, Any]) -> dict[str, Any]:
    values: Mapping[str, Any] = found["results"][name]
    metrics: dict[str, dict[str, float | None]] = {}
    for key, value in values.items():
        metric, comma, by = key.partition(",")
        if not comma or metric.endswith(_STDERR):
            continue
        spread = values.get(f"{metric}{_STDERR},{by}")
        metrics[metric if by == "none" else key] = {
            "value": _number(value),
            "stderr": _number(spread),
        }
    return {
        "metrics": metrics,
        "documents": found["n-samples"].get(name, {}).get("effective"),
        "fewshot": found["n-shot"].get(name),
        "version": found["versions"].get(name),
    }


def _number(value: object) -> float | None:
    """A figure; what is none, as ``N/A``, is None."""
    return float(value) if isinstance(value, int | float) else None
