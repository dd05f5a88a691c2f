"""Workers that fail say why; scores of a worker are those of its logits."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from benchmarks.peers import measuring
from benchmarks.peers.tools import FailedError, reason_of, run

WORKERS = Path(measuring.__file__).parent / "workers"


def python(code: str) -> list[str]:
    """A command that runs code beside the workers."""
    return [sys.executable, "-c", f"import sys; sys.path.insert(0, {str(WORKERS)!r}); {code}"]


def test_a_worker_that_does_not_start_says_why() -> None:
    with pytest.raises(FailedError, match=r"ended with 1: ValueError: no such model"):
        measuring.Worker(python("raise ValueError('no such model')"))


def test_a_worker_that_ends_in_a_request_says_why() -> None:
    code = "import serving; serving.serve({'prefill': lambda r: 1 / 0}, {})"
    expected = pytest.raises(FailedError, match="ZeroDivisionError: division by zero")
    with measuring.started(python(code)) as worker, expected:
        worker.ask("prefill")


def test_an_answer_that_is_none_is_quoted() -> None:
    with pytest.raises(FailedError, match="the worker answered 'INFO loading'"):
        measuring.Worker(python("print('INFO loading')"))


def test_what_is_printed_after_stdout_was_taken_is_no_answer() -> None:
    code = (
        "import serving; a = serving.take_stdout(); print('INFO'); serving.serve({}, {'v': 1}, a)"
    )
    with measuring.started(python(code)) as worker:
        assert worker.about == {"v": 1}


def test_a_tool_that_fails_says_why() -> None:
    with pytest.raises(FailedError, match=r"-c ended with 3: RuntimeError: too large"):
        run(python("print('RuntimeError: too large\\ncleaning up'); sys.exit(3)"))


@pytest.mark.parametrize(
    ("log", "reason"),
    [("a\nKeyError: 'x'\n\nbye\n", "KeyError: 'x'"), ("a\nb\n", "b"), ("", "it said nothing")],
)
def test_the_reason_is_the_last_error_or_the_last_line(log: str, reason: str) -> None:
    assert reason_of(log) == reason


def test_logits_of_a_worker_come_as_a_file_and_as_perplexity(tmp_path: Path) -> None:
    code = (
        "import serving, numpy as np; of = lambda tokens: np.outer(tokens, [1.0, 2.0, 3.0]); "
        "serving.serve(serving.scoring(of), {'version': '1'})"
    )
    file = tmp_path / "logits.npy"
    with measuring.started(python(code)) as worker:
        assert worker.ask("logits", tokens=[1, 2], file=str(file)) == {"rows": 2}
        score: dict[str, Any] = worker.ask("perplexity", windows=[[1, 2, 0]])
    found = np.load(file)
    assert found.dtype == np.float32
    np.testing.assert_array_equal(found, [[1, 2, 3], [2, 4, 6]])
    rows = found - np.log(np.exp(found).sum(axis=1, keepdims=True))
    assert score["tokens"] == 2
    assert score["nll"] == pytest.approx(-(rows[0, 2] + rows[1, 0]))
    assert json.dumps(score)


def test_too_few_rows_of_logits_are_an_error(tmp_path: Path) -> None:
    code = "import serving; serving.serve(serving.scoring(lambda tokens: [[0.0]]), {})"
    expected = pytest.raises(FailedError, match="logits of 1 rows for 3 tokens")
    with measuring.started(python(code)) as worker, expected:
        worker.ask("logits", tokens=[1, 2, 3], file=str(tmp_path / "x.npy"))
