"""What commands print."""

from __future__ import annotations

import io
import json

import pytest

from optc.cli.output import byte_text, figure, print_error, print_json, show, table
from optc.errors import InputError
from optc.system.units import kv_text


def test_tables_have_no_blanks_at_the_ends_of_lines(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("COLUMNS", raising=False)
    rows = table("title", "name", "what")
    rows.add_row("a", "b" * 200)
    rows.add_row("ab", "c")
    show(rows, "text")
    lines = capsys.readouterr().out.splitlines()
    assert [line.rstrip() for line in lines] == lines
    assert lines[-1] == "text"
    assert 150 < max(map(len, lines)) <= 160  # a file has no width of its own


def test_a_text_of_megabytes_is_cut(capsys: pytest.CaptureFixture[str]) -> None:
    rows = table("title", "name", "what")
    rows.add_row("a", "word " * 400_000)
    rows.add_row("b", "x" * 10_000)
    show(rows)
    shown = capsys.readouterr().out
    assert "… (2000000 characters, all of them with --json)" in " ".join(shown.split())
    assert shown.count("word") == 2000
    assert shown.count("x") == 10_000


def test_rows_beyond_a_thousand_are_counted(capsys: pytest.CaptureFixture[str]) -> None:
    rows = table("title", "number")
    for number in range(1_002):
        rows.add_row(str(number))
    show(rows)
    words = capsys.readouterr().out.split()
    assert "999" in words
    assert "1000" not in words
    assert "… and 2 more, all of them with --json" in " ".join(words)


def test_json_is_one_line_with_rounded_numbers(capsys: pytest.CaptureFixture[str]) -> None:
    print_json("x", {"seconds": 55.741629889999786, "text": "é\n"}, ["careful"])
    assert capsys.readouterr().out == (
        '{"schema": "optc.x.v1", "seconds": 55.7416, "text": "é\\n", "warnings": ["careful"]}\n'
    )


def test_json_escapes_what_the_encoding_lacks(monkeypatch: pytest.MonkeyPatch) -> None:
    written = io.BytesIO()
    monkeypatch.setattr("sys.stdout", io.TextIOWrapper(written, "ascii", "backslashreplace"))
    print_json("x", {"text": "é"})
    assert json.loads(written.getvalue())["text"] == "é"


def test_details_and_warnings_of_an_error(capsys: pytest.CaptureFixture[str]) -> None:
    error = InputError("wrong", where="here", hint="mend it")
    error.details = {"figures": [1], "warnings": ["careful"]}  # type: ignore[attr-defined]
    assert print_error(error, as_json=True) == 2
    assert json.loads(capsys.readouterr().out) == {
        "schema": "optc.error.v1",
        "error": {"kind": "input", "message": "wrong", "where": "here", "hint": "mend it"},
        "figures": [1],
        "warnings": ["careful"],
    }
    assert print_error(error, as_json=False) == 2
    assert capsys.readouterr() == ("", "error: here: wrong (mend it)\n")


def test_figures_for_reading() -> None:
    assert [byte_text(n) for n in (0, 1023, 1024, 5 << 20, 5 << 40)] == [
        "0 B",
        "1023 B",
        "1.0 KiB",
        "5.0 MiB",
        "5120.0 GiB",
    ]
    assert [kv_text(2048, 2048), kv_text(1024, 3072)] == [
        "2.0 KiB",
        "1.0 KiB, within windows 3.0 KiB",
    ]
    assert [figure(None), figure(1234.56), figure(0.012345, 2)] == ["-", "1235", "0.012"]
