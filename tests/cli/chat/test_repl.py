"""``optc chat``: answers are those of the library; what is wrong ends a message, not the chat."""

from __future__ import annotations

import json
import signal
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import optc as package
from optc.runtime.handle import Handle
from tests.cli.chat.conftest import Talk
from tests.cli.conftest import Optc
from tests.runtime.support.artifacts import write_artifact
from tests.runtime.support.toy import ToyExecutable

PARAMS = package.SamplingParams(temperature=0, max_tokens=5, ignore_eos=True)


def user(text: str) -> dict[str, str]:
    return {"role": "user", "content": text}


def answered(talker: Path, *said: str, system: str | None = None) -> list[dict[str, str]]:
    """The conversation in which a user says these."""
    messages = [] if system is None else [{"role": "system", "content": system}]
    with package.load(talker) as engine:
        for text in said:
            messages.append(user(text))
            answer = engine.chat(messages, PARAMS).text
            messages.append({"role": "assistant", "content": answer})
    return messages


def saved(path: Path) -> list[dict[str, str]]:
    messages: list[dict[str, str]] = json.loads(path.read_text("utf-8"))["messages"]
    return messages


def test_answers_depend_on_the_whole_conversation(talk: Talk, talker: Path, tmp_path: Path) -> None:
    file = tmp_path / "chat.json"
    outcome = talk("hi", "and", f"/save {file}", options=("--system", "be brief"))
    messages = answered(talker, "hi", "and", system="be brief")
    assert (outcome.code, saved(file)) == (0, messages)
    assert outcome.err.count("(5 tokens, ") == 2
    assert "cut at its limit" in outcome.err
    assert f"5 messages are in {file}" in outcome.err


def test_it_goes_on_from_a_file(talk: Talk, talker: Path, tmp_path: Path) -> None:
    first, second = tmp_path / "a.json", tmp_path / "b.json"
    talk("hi", f"/save {first}")
    talk("and", f"/save {second}", options=("--messages", first))
    assert saved(second) == answered(talker, "hi", "and")
    talk("x", f"/load {first}", "and", f"/save {second}")
    assert saved(second) == answered(talker, "hi", "and")


def test_several_lines_and_slashes_are_text(talk: Talk, tmp_path: Path) -> None:
    file = tmp_path / "chat.json"
    talk('"""', "a", "b", '"""', "//etc", "", f"/save {file}")
    assert [m["content"] for m in saved(file) if m["role"] == "user"] == ["a\nb", "/etc"]


def test_what_is_wrong_ends_a_message_and_not_the_chat(
    talk: Talk, talker: Path, tmp_path: Path
) -> None:
    file = tmp_path / "chat.json"
    outcome = talk("x" * 200, "/nothing", "hi", f"/save {file}")
    assert outcome.code == 2, "that of a script says that something was wrong"
    assert "the context holds 128" in outcome.err
    assert "no command /nothing" in outcome.err
    assert saved(file) == answered(talker, "hi")


@pytest.fixture
def ctrl_c() -> Iterator[None]:
    """Ctrl-C raises KeyboardInterrupt, also where tests were started in the background: there it
    is ignored."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("ctrl_c")
def test_an_interrupt_stops_the_answer_alone(
    talk: Talk, talker: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ctrl-C comes in the third step, once the answer is read, and the step takes until the answer
    is cancelled."""
    steps, cancelled, main = [0], threading.Event(), threading.main_thread().ident
    step, cancel, read = ToyExecutable.step, Handle.cancel, threading.Event()
    iterate = Handle.__iter__
    assert main is not None

    def interrupted(self: ToyExecutable, *batch: Any) -> Any:
        steps[0] += 1
        if steps[0] == 3:
            assert read.wait(30)
            signal.pthread_kill(main, signal.SIGINT)
            assert cancelled.wait(30)
        return step(self, *batch)

    def noted(self: Handle) -> None:
        cancel(self)
        cancelled.set()

    def reading(self: Handle) -> Any:
        read.set()
        return iterate(self)

    monkeypatch.setattr(ToyExecutable, "step", interrupted)
    monkeypatch.setattr(Handle, "cancel", noted)
    monkeypatch.setattr(Handle, "__iter__", reading)
    file = tmp_path / "chat.json"
    outcome = talk("hi", f"/save {file}", "and")
    assert outcome.code == 0
    assert "stopped)" in outcome.err
    assert outcome.err.count(" tokens, ") == 2  # the next message has its answer
    (whole,) = (m["content"] for m in answered(talker, "hi") if m["role"] == "assistant")
    (cut,) = (m["content"] for m in saved(file) if m["role"] == "assistant")
    assert whole.startswith(cut)
    assert cut != whole


@pytest.mark.usefixtures("ctrl_c")
def test_an_interrupt_between_a_request_and_its_handle_cancels_it(
    talk: Talk, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No step ends before the first request is cancelled."""
    handles: list[Handle] = []
    submit, step, cancel = package.Engine.submit, ToyExecutable.step, Handle.cancel
    cancelled = threading.Event()

    def noted(self: Handle) -> None:
        cancel(self)
        cancelled.set()

    def waiting(self: ToyExecutable, *batch: Any) -> Any:
        assert cancelled.wait(30)
        return step(self, *batch)

    def interrupted(self: package.Engine, *asked: Any, **terms: Any) -> Handle:
        handle = submit(self, *asked, **terms)
        handles.append(handle)
        if len(handles) == 1:
            signal.raise_signal(signal.SIGINT)
        return handle

    monkeypatch.setattr(package.Engine, "submit", interrupted)
    monkeypatch.setattr(ToyExecutable, "step", waiting)
    monkeypatch.setattr(Handle, "cancel", noted)
    before = signal.getsignal(signal.SIGINT)
    outcome = talk("hi", "and")
    assert outcome.code == 0
    assert [handle.result().finish_reason for handle in handles] == ["cancelled", "length"]
    assert signal.getsignal(signal.SIGINT) is before


def test_an_interrupt_at_the_prompt_says_how_to_end(
    optc: Optc, talker: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    typed = iter([KeyboardInterrupt(), "/exit", "never asked"])

    def line(prompt: str) -> str:
        found = next(typed)
        if isinstance(found, str):
            return found
        raise found

    monkeypatch.setattr("optc.cli.chat.reading.typed_line", line)
    outcome = optc("chat", talker)
    assert outcome.code == 0
    assert "(/exit or Ctrl-D ends)" in outcome.err
    assert next(typed) == "never asked"


def test_a_model_without_a_chat_template_is_refused(optc: Optc, talker: Path) -> None:
    plain = write_artifact(talker.parent / "plain", chat_template="").path
    outcome = optc("chat", plain)
    assert outcome.code == 2
    assert "the model has no chat template (optc run continues plain prompts)" in outcome.err


def test_control_characters_of_an_answer_reach_no_terminal(
    talk: Talk, monkeypatch: pytest.MonkeyPatch
) -> None:
    outcome = talk("hi", options=("--choice", "a\x1bb"))
    assert "a\\x1bb\n" in outcome.out


def test_an_engine_that_fails_ends_the_chat(talk: Talk, monkeypatch: pytest.MonkeyPatch) -> None:
    def explode(self: object, batch: object) -> None:
        raise ArithmeticError("the kernel broke")

    monkeypatch.setattr(ToyExecutable, "step", explode)
    outcome = talk("hi", "never asked")
    assert outcome.code == 70
    assert outcome.err.count("the engine failed") >= 1
