"""A message is a line, lines that go on, or what stands between fences."""

from __future__ import annotations

import io
from collections.abc import Callable

import pytest

from optc.cli.chat import reading
from optc.cli.chat.reading import read_message, typed_line


def typed(*lines: str) -> Callable[[str], str | None]:
    left = iter(lines)
    return lambda prompt: next(left, None)


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        (("one",), "one"),
        (("",), ""),
        (("one\\", "two\\", "three", "four"), "one\ntwo\nthree"),
        (("one\\",), "one\n"),
        (('"""', "one", "  two", '"""', "three"), "one\n  two"),
        (('"""one', 'two"""'), "one\ntwo"),
        (('"""one"""',), "one"),
        (('"""', "never", "closed"), "never\nclosed"),
        ((), None),
    ],
)
def test_messages(lines: tuple[str, ...], message: str | None) -> None:
    assert read_message(typed(*lines)) == message


def test_prompts_tell_a_first_line_from_the_next() -> None:
    prompts: list[str] = []
    left = iter(["a\\", "b"])

    def line(prompt: str) -> str | None:
        prompts.append(prompt)
        return next(left)

    read_message(line)
    assert prompts == ["> ", ". "]


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_a_pipe_is_shown_no_prompt(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO("one\n\nlast"))
    assert [typed_line("> ") for _ in range(4)] == ["one", "", "last", None]
    assert capsys.readouterr() == ("", "")


def test_answers_that_go_to_a_file_are_without_prompts(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.stdin", Terminal("one\n"))
    assert [typed_line("> "), typed_line("> ")] == ["one", None]
    assert capsys.readouterr() == ("", "> > ")


def test_a_terminal_is_read_by_input(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.stdin", Terminal())
    monkeypatch.setattr("sys.stdout", Terminal())
    answers = iter(["one"])

    def ask(prompt: str) -> str:
        assert prompt == "> "
        for answer in answers:
            return answer
        raise EOFError

    monkeypatch.setattr(reading, "input", ask, raising=False)
    assert [typed_line("> "), typed_line("> ")] == ["one", None]
