"""Memory that ran out is one message, however a package says so."""

from __future__ import annotations

import errno

import pytest

from optc.cli import main as module
from optc.cli.main import run
from optc.errors import EngineError
from optc.system.no_memory import memory_error, no_memory


@pytest.mark.parametrize(
    ("error", "ran_out"),
    [
        (MemoryError(), True),
        (OSError(errno.ENOMEM, "x"), True),
        (RuntimeError("[ONNXRuntimeError] : std::bad_alloc"), True),
        (RuntimeError("can't start new thread"), True),
        (ValueError("out of memory"), False),
        (OSError(errno.ENOENT, "x"), False),
    ],
)
def test_memory_that_ran_out_is_recognized(error: Exception, ran_out: bool) -> None:
    assert no_memory(error) is ran_out
    later = RuntimeError("later")
    later.__cause__ = error
    assert no_memory(later) is ran_out


@pytest.mark.parametrize("wrapped", [False, True])
def test_a_command_ends_with_one_message(
    wrapped: bool, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def ends(*_: object, **__: object) -> None:
        try:
            raise MemoryError
        except MemoryError as error:
            if wrapped:
                raise EngineError("the engine failed") from error
            raise

    monkeypatch.setattr(module.cli, "main", ends)
    assert run(["targets"]) == memory_error().exit_code == 3
    said = capsys.readouterr().err
    assert "the memory does not suffice" in said
    assert "ulimit -v" in said
    assert "Traceback" not in said
