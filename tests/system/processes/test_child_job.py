"""Work in a process of its own: answers, refusals, and all other ways to end."""

from __future__ import annotations

import errno
import os
import sys
import tempfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from optc.artifact.writer import ArtifactWriter
from optc.errors import InputError, OptcError, UnavailableError, UnsupportedError
from optc.system.processes.child_job import ChildJob, anonymous_bytes, answer

JOB = ChildJob("strange_child", "the child", where="here", hint="report it", timeout_s=60.0)
ANSWERS = """
import sys
from optc.system.processes.child_job import answer
from optc.errors import InputError, UnavailableError, UnsupportedError
def work(request):
    print("noise")
    if request == "wait":
        import time
        time.sleep(0.5)
    if request == "blame":
        raise InputError("too short", where="text.txt")
    if request == "refuse":
        raise UnsupportedError("no such node", where="n1", hint="another")
    if request == "lack":
        raise UnavailableError("no compiler")
    return {"said": request}
sys.exit(answer(sys.argv[1:], work))
"""


@pytest.fixture
def child(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The file of the child's code."""
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    return tmp_path / "strange_child.py"


def test_an_answer_and_refusals(child: Path, capfd: pytest.CaptureFixture[str]) -> None:
    child.write_text(ANSWERS)
    assert JOB.run("größer") == {"said": "größer"}
    with pytest.raises(UnsupportedError) as refused:
        JOB.run("refuse")
    assert refused.value.render() == "n1: no such node (another)"
    with pytest.raises(UnavailableError, match=r"^no compiler$"):
        JOB.run("lack")
    with pytest.raises(InputError, match=r"^text.txt: too short$") as blamed:
        JOB.run("blame")
    assert not isinstance(blamed.value, UnsupportedError)
    assert capfd.readouterr() == ("", ""), "nothing of the child reaches the terminal"


def test_a_full_disk_of_temporary_files_is_no_fault_of_the_child(child: Path) -> None:
    for number in (28, 122, 27):
        child.write_text(f"raise OSError({number}, 'No space left')")
        with pytest.raises(InputError, match="temporary files cannot be written") as caught:
            JOB.run("x")
        assert "TMPDIR" in caught.value.hint
    child.write_text("raise OSError(2, 'No such file')")
    with pytest.raises(UnavailableError, match="ended with status"):
        JOB.run("x")


def test_a_disk_that_is_too_full_to_say_so(
    child: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither for the request, nor for what the child says of its end."""
    child.write_text("raise SystemExit(3)")

    def full(name: str) -> Callable[..., int]:
        def write(self: Path, *arguments: Any, **options: Any) -> int:
            if self.name == name:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            return real(self, *arguments, **options)

        real: Callable[..., int] = getattr(Path, WRITES[name])
        return write

    for name, write in WRITES.items():
        with monkeypatch.context() as patched:
            patched.setattr(Path, write, full(name))
            with pytest.raises(InputError, match="temporary files cannot be written") as caught:
                JOB.run("x")
            assert caught.value.where == tempfile.gettempdir()
            with pytest.raises(InputError, match="cannot be written: the disk is full") as caught:
                _compiled(tmp_path / "out" / "a")
            assert caught.value.where == tempfile.gettempdir()
            assert "TMPDIR" in caught.value.hint


WRITES = {"request": "write_text", "room": "write_bytes"}


def _compiled(output: Path) -> None:
    with ArtifactWriter(output):
        JOB.run("x")


def test_who_waits_may_look_now_and_then(child: Path) -> None:
    child.write_text(ANSWERS)
    looks: list[int] = []
    with JOB.started("wait", looking=lambda: looks.append(1)) as finish:
        assert finish() == {"said": "wait"}
    assert looks


@pytest.mark.parametrize(
    ("code", "ending"),
    [
        (
            "import os; print('a\\n  b', flush=True); os.abort()",
            "was killed by signal 6; its last lines: a | b",
        ),
        ("import sys; sys.exit(3)", "ended with status 3"),
        (
            "print(*'123456', sep='\\n'); raise ValueError('7')",
            "ended with status 1; its last lines: .*ValueError: 7",
        ),
    ],
)
def test_a_crash_is_an_error_that_quotes_the_last_lines(
    child: Path, code: str, ending: str
) -> None:
    child.write_text(code)
    with pytest.raises(UnavailableError) as caught:
        JOB.run("")
    assert caught.value.where == "here"
    assert caught.value.hint == "report it"
    shown = caught.value.message
    head, _, tail = f"the child {ending}".partition(".*")
    assert shown.startswith(head)
    assert shown.endswith(tail)
    assert shown.count(" | ") <= 5


def test_a_child_that_never_ends_is_ended(child: Path) -> None:
    child.write_text("import time\nwhile True: time.sleep(1)")
    with pytest.raises(UnavailableError, match="the child did not finish within 1 s"):
        replace(JOB, timeout_s=1.0).run("")


def test_a_child_that_takes_too_much_memory_is_ended(child: Path) -> None:
    child.write_text("import time\nheld = bytearray(b'x') * (300 << 20)\nwhile True: time.sleep(1)")
    with pytest.raises(UnavailableError, match="took more than 104857600 bytes of memory"):
        JOB.run("", max_bytes=100 << 20)
    child.write_text(ANSWERS)
    assert JOB.run("x", max_bytes=1 << 30) == {"said": "x"}


def test_a_child_that_nobody_waits_for_is_ended(child: Path, tmp_path: Path) -> None:
    mark = tmp_path / "pid"
    child.write_text(
        f"import os, time\nopen({str(mark) + '.part'!r}, 'w').write(str(os.getpid()))\n"
        f"os.rename({str(mark) + '.part'!r}, {str(mark)!r})\nwhile True: time.sleep(1)"
    )
    with JOB.started(""):
        while not mark.exists():
            os.sched_yield()
    assert not Path(f"/proc/{mark.read_text()}").exists()


def test_memory_of_a_process() -> None:
    held = bytearray(b"x") * (64 << 20)
    assert anonymous_bytes(os.getpid()) > len(held)
    assert anonymous_bytes(2**22 + 1) == 0


def test_an_answer_is_whole_or_not_there(tmp_path: Path) -> None:
    asked, result = tmp_path / "request", tmp_path / "result"
    asked.write_text("x")

    def fail(request: str) -> object:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        answer([str(asked), str(result)], fail)
    with pytest.raises(TypeError):
        answer([str(asked), str(result)], lambda request: object())
    assert not result.exists()

    def refuse(request: str) -> OptcError:
        raise InputError("no")

    assert answer([str(asked), str(result)], refuse) == 1
    assert answer([str(asked), str(result)], len) == 0
    assert result.read_text() == '{"answer": 1}'
