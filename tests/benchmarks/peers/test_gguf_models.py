"""What is called to make a format out of a GGUF file, in which order; nothing is made twice."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from benchmarks.peers import gguf_models
from benchmarks.peers.gguf_models import GIVEN, Tools, calibration_text, commands
from benchmarks.peers.subjects import Subject

TOOLS = Tools(
    quantize=lambda source, output, name, imatrix: [
        "quantize", source.name, output.name, name, imatrix.name if imatrix else ""],
    imatrix=lambda base, text, output: ["imatrix", base.name, text.name, output.name],
    suffix=".dat",
    framed=True,
)  # fmt: skip


@pytest.fixture
def subject(tmp_path: Path) -> Subject:
    folder = tmp_path / "model"
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps({"bos_token_id": 1, "eos_token_id": 2}))
    tokens = [{"id": 1, "content": "<s>"}, {"id": 2, "content": "</s>"}]
    (folder / "tokenizer.json").write_text(json.dumps({"added_tokens": tokens}))
    text = tmp_path / "text.jsonl"
    text.write_text('{"text": "one"}\n\n{"text": "two"}\n')
    return Subject("m", folder, tmp_path / "source.gguf", text)


def run(name: str, subject: Subject, output: Path) -> list[list[str]]:
    """The commands, each of which leaves its file."""
    made = []
    for command in commands(name, subject, output, TOOLS):
        made.append(command)
        target = command[2] if command[0] == "quantize" else command[3]
        (output / target).touch()
    return made


def test_a_format_is_made_of_float_with_importances(subject: Subject, tmp_path: Path) -> None:
    output = tmp_path / "out"
    assert run("Q4_K_M", subject, output) == [
        ["quantize", "source.gguf", "F32.gguf", "F32", ""],
        ["imatrix", "F32.gguf", "calibration.txt", "imatrix.dat"],
        ["quantize", "F32.gguf", "Q4_K_M.gguf", "Q4_K_M", "imatrix.dat"],
    ]
    assert (output / "calibration.txt").read_text() == "<s>one</s><s>two</s>"
    again = [["quantize", "F32.gguf", "IQ4_XS.gguf", "IQ4_XS", "imatrix.dat"]]
    assert run("IQ4_XS", subject, output) == again


def test_eight_bits_ask_no_importances(subject: Subject, tmp_path: Path) -> None:
    assert run("Q8_0", subject, tmp_path / "out")[1:] == [
        ["quantize", "F32.gguf", "Q8_0.gguf", "Q8_0", ""]
    ]


def test_float_is_the_dequantized_source(subject: Subject, tmp_path: Path) -> None:
    assert len(run("F32", subject, tmp_path / "out")) == 1
    assert run("F32", subject, tmp_path / "out") == []


def test_the_file_as_it_came_is_not_made(subject: Subject, tmp_path: Path) -> None:
    assert run(GIVEN, subject, tmp_path / "out") == []
    assert gguf_models.file_of(GIVEN, subject, tmp_path) == subject.gguf


def test_documents_follow_one_another_where_a_reader_knows_no_special_tokens(
    subject: Subject,
) -> None:
    assert calibration_text(subject, framed=False) == "one\n\ntwo"


def test_importances_are_handed_to_both_tools_in_their_own_words(tmp_path: Path) -> None:
    base, output, imatrix = tmp_path / "F32.gguf", tmp_path / "q.gguf", tmp_path / "imatrix.dat"
    ik = gguf_models.ik_llama_tools(tmp_path)
    assert ik.quantize(base, output, "IQ4_K", imatrix)[1:] == [
        "--imatrix", str(imatrix), str(base), str(output), "IQ4_K"]  # fmt: skip
    assert "--allow-requantize" in ik.quantize(base, output, "F32", None)
    llama = gguf_models.llama_cpp_tools("python", "script.py", tmp_path)
    assert llama.quantize(base, output, "Q4_K_M", imatrix) == [
        "python", "script.py", str(base), str(output), "Q4_K_M", str(imatrix)]  # fmt: skip
