"""``optc run --input --output``: an answer a line, and a run that goes on where one was killed."""

from __future__ import annotations

import fcntl
import json
from pathlib import Path
from typing import Any

import pytest

import optc as package
from tests.cli.batch.conftest import Answer, lines_of
from tests.cli.conftest import Optc
from tests.runtime.support.toy import ToyExecutable

PARAMS = package.SamplingParams(temperature=0, max_tokens=4, ignore_eos=True)
USER = {"role": "user", "content": "hi"}


def expected(talker: Path, *prompts: Any, params: package.SamplingParams = PARAMS) -> list[str]:
    with package.load(talker) as engine:
        return [output.text for output in engine.generate(list(prompts), params)]


def test_each_line_has_its_answer_in_order(answer: Answer, talker: Path, tmp_path: Path) -> None:
    prompts = [f"line {number}" for number in range(70)]
    outcome = answer(*({"prompt": text} for text in prompts))
    found = lines_of(tmp_path / "out.jsonl")
    assert (outcome.code, outcome.out) == (0, "")
    assert [line["text"] for line in found] == expected(talker, *prompts)
    assert [line["line"] for line in found] == list(range(1, 71))
    assert set(found[0]) == {
        "line",
        "text",
        "token_ids",
        "prompt_tokens",
        "output_tokens",
        "finish_reason",
    }
    assert "70 answers in " in outcome.err
    assert " 280 new ones in " in outcome.err
    assert [path.name for path in tmp_path.glob(".*")] == []


def test_forms_of_lines(answer: Answer, talker: Path, tmp_path: Path) -> None:
    outcome = answer(
        '"hi"',
        "",
        {"prompt": [5, 6, 7], "custom_id": "ids"},
        {"messages": [USER]},
        {"prompt": "hi", "max_tokens": 2, "logit_bias": {"9": 50}},
    )
    assert outcome.code == 0
    found = lines_of(tmp_path / "out.jsonl")
    chat = package.Chat([USER])
    assert [line["text"] for line in found[:3]] == expected(talker, "hi", [5, 6, 7], chat)
    assert [line["line"] for line in found] == [1, 3, 4, 5]
    assert [line.get("custom_id") for line in found] == [None, "ids", None, None]
    assert found[3]["token_ids"] == [9, 9]


def test_options_of_the_command_hold_for_all_lines(
    answer: Answer, talker: Path, tmp_path: Path
) -> None:
    led = package.Chat([{"role": "system", "content": "s"}, USER])
    answer({"prompt": "hi"}, {"messages": [USER]}, options=("--system", "s", "--max-tokens", "3"))
    params = package.SamplingParams(temperature=0, max_tokens=3, ignore_eos=True)
    found = [line["text"] for line in lines_of(tmp_path / "out.jsonl")]
    assert found == expected(talker, led, led, params=params)


@pytest.mark.parametrize(
    ("line", "where", "message"),
    [
        ("{", "line", "not JSON"),
        ("3", "line", "neither a text nor an object"),
        ('{"prompt": "a", "prompt": "b"}', "line", "not JSON"),
        ({"text": "a"}, "line", "a line has a prompt or messages"),
        ({"prompt": "a", "messages": [USER]}, "line", "a line has a prompt or messages"),
        ({"prompt": "a", "temprature": 1}, "line", "there is no parameter 'temprature'"),
        ({"prompt": "a", "temperature": -1}, "sampling parameters", "temperature=-1"),
        ({"prompt": "a", "custom_id": 3}, "custom_id", "not a text"),
        ({"prompt": None}, "prompt", "not a prompt"),
        ({"prompt": ["a"]}, "prompt", "not a prompt"),
        ({"messages": []}, "messages", "not a conversation"),
        ({"prompt": "x" * 300}, "", "the context holds 128"),
    ],
)
def test_a_bad_line_has_its_error_and_the_others_their_answers(
    answer: Answer, tmp_path: Path, line: object, where: str, message: str
) -> None:
    outcome = answer({"prompt": "hi"}, line, {"prompt": "hi"}, options=("--json",))
    assert outcome.code == 2
    value = outcome.json
    assert "1 of 3 lines have an error instead of an answer" in value["error"]["message"]
    assert (value["lines"], value["errors"], value["resumed"]) == (3, 1, 0)
    first, bad, last = lines_of(tmp_path / "out.jsonl")
    assert first["text"] == last["text"]
    assert message in bad["error"]["message"]
    assert where in bad["error"]["where"]
    assert (bad["line"], set(bad) <= {"line", "custom_id", "error"}) == (2, True)


def test_a_killed_run_goes_on(
    answer: Answer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Steps from the 30th on are an interrupt; what was being written is cut off."""
    lines = [{"prompt": f"line {number}"} for number in range(60)]
    assert answer(*lines).code == 0
    whole = (tmp_path / "out.jsonl").read_bytes()
    (tmp_path / "out.jsonl").unlink()

    steps, step = [0], ToyExecutable.step

    def failing(self: ToyExecutable, *batch: Any) -> Any:
        steps[0] += 1
        if steps[0] == 30:
            raise ArithmeticError("killed")
        return step(self, *batch)

    with monkeypatch.context() as patch:
        patch.setattr(ToyExecutable, "step", failing)
        stopped = answer(*lines)
    assert stopped.code == 70
    written = (tmp_path / "out.jsonl").read_bytes()
    assert whole.startswith(written)
    count = written.count(b"\n")
    assert 0 < count < 60
    hint = f"{count} of 60 answers are in {tmp_path / 'out.jsonl'}; the same command goes on behind"
    assert hint in stopped.err
    with (tmp_path / "out.jsonl").open("ab") as stream:
        stream.write(b'{"line": 99, "te')
    outcome = answer(options=("--json",))
    assert (outcome.code, outcome.json["resumed"]) == (0, count)
    assert outcome.json["output_tokens"] == 4 * (60 - count)
    assert (tmp_path / "out.jsonl").read_bytes() == whole


def test_errors_of_a_killed_run_are_counted(answer: Answer, tmp_path: Path) -> None:
    assert answer("{", {"prompt": "a"}, {"prompt": "b"}).code == 2
    out = tmp_path / "out.jsonl"
    first = out.read_bytes().splitlines(keepends=True)[0]
    out.unlink()
    unfinished(answer, out, first)
    outcome = answer(options=("--json",))
    assert (outcome.code, outcome.json["errors"], outcome.json["resumed"]) == (2, 1, 1)


def unfinished(answer: Answer, out: Path, contents: bytes) -> None:
    """Leave what a killed run leaves."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("optc.cli.batch.answering.run_batch", lambda *_: 1 / 0)
        assert answer().code == 70
    out.write_bytes(contents)


def test_a_run_of_something_else_is_refused(answer: Answer, tmp_path: Path) -> None:
    out = tmp_path / "out.jsonl"
    (tmp_path / "in.jsonl").write_text('{"prompt": "a"}\n{"prompt": "b"}\n')
    unfinished(answer, out, b'{"line": 1, "text": "x"}\n')
    outcome = answer(options=("--temperature", "1"))
    assert outcome.code == 2
    assert "begun with other options (remove it to begin anew" in outcome.err
    assert "begun with another input" in answer({"prompt": "c"}).err
    resume = tmp_path / ".out.jsonl.resume.json"
    begun = json.loads(resume.read_text())
    resume.write_text(json.dumps(begun | {"artifact": "other"}))
    assert "begun with another artifact and another input" in answer().err
    resume.write_text("{")
    assert "begun with something that cannot be read" in answer().err
    assert out.read_bytes() == b'{"line": 1, "text": "x"}\n'
    resume.unlink()
    assert "it is there already (give another file, or remove it)" in answer().err


def test_answers_that_are_none(answer: Answer, tmp_path: Path) -> None:
    (tmp_path / "in.jsonl").write_text('{"prompt": "a"}\n')
    unfinished(answer, tmp_path / "out.jsonl", b"precious\n")
    assert "line 1 is no answer: " in answer().err
    assert (tmp_path / "out.jsonl").read_bytes() == b"precious\n"


def test_one_process_writes(answer: Answer, tmp_path: Path) -> None:
    with (tmp_path / "out.jsonl").open("w") as stream:
        fcntl.flock(stream, fcntl.LOCK_EX)
        outcome = answer({"prompt": "a"})
    assert outcome.code == 2
    assert "another process writes it" in outcome.err


def test_wrong_usage(optc: Optc, talker: Path, tmp_path: Path) -> None:
    (tmp_path / "in.jsonl").write_text("\n")
    source, out = ("--input", tmp_path / "in.jsonl"), ("--output", tmp_path / "out.jsonl")
    for arguments in (source, out, (*source, *out, "--prompt", "x")):
        outcome = optc("run", talker, *arguments)
        assert outcome.code == 2
        assert "--input and --output go together" in outcome.err
    assert "has no lines" in optc("run", talker, *source, *out).err
    absent = optc("run", talker, "--input", "absent", *out)
    assert "--input: cannot read absent: No such file or directory" in absent.err
    (tmp_path / "in.jsonl").write_text('"a"\n')
    outcome = optc("run", talker, *source, "--output", tmp_path / "absent/out.jsonl")
    assert outcome.code == 2
    assert "cannot be written: No such file or directory" in outcome.err


def test_files_with_a_byte_order_mark(
    answer: Answer, optc: Optc, talker: Path, tmp_path: Path
) -> None:
    (tmp_path / "schema.json").write_bytes(b"\xef\xbb\xbf" + b'{"const": 7}')
    run = ("run", talker, "--prompt", "hi", "--json-schema", tmp_path / "schema.json", "--json")
    assert optc(*run).json["text"] == "7"
    answer('\ufeff"hi"')
    assert "error" not in lines_of(tmp_path / "out.jsonl")[0]
