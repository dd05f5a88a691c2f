"""Names and reports of artifacts that others made, as commands show them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from optc.cli.output import print_error, print_warnings, show, table, visible
from optc.errors import InputError
from tests.artifact.toy import forge, write_toy
from tests.cli.conftest import Optc

EVIL = "\x1b]0;title\x07\x1b[31mred\x9b0m\u202eback"
SHOWN = r"\x1b]0;title\x07\x1b[31mred\x9b0m\u202eback"


def test_control_characters_are_spelled_out_and_others_kept() -> None:
    assert visible(EVIL) == SHOWN
    assert visible("naïve 語 \U0001f600\n\tend") == "naïve 語 \U0001f600\n\tend"


def test_tables_and_warnings_obey_no_text(capsys: pytest.CaptureFixture[str]) -> None:
    rows = table(f"title {EVIL}", "name", f"head {EVIL}")
    rows.add_row("x", EVIL)
    show(rows, f"line {EVIL}")
    print_warnings([EVIL])
    streams = capsys.readouterr()
    assert streams.out.count(SHOWN) == 4
    assert streams.err == f"warning: {SHOWN}\n"
    assert not set("\x1b\x07\x9b\u202e") & set(streams.out)


@pytest.mark.parametrize("end", ["\n", "\r", "\r\n", "\u2028", "\u2029", "\x85", "\x0b"])
def test_no_message_can_look_like_two(end: str, capsys: pytest.CaptureFixture[str]) -> None:
    text = f"no file a{end}error: forged"
    print_error(InputError(text, where=text, hint=text), as_json=False)
    print_warnings([text, text])
    lines = capsys.readouterr().err.splitlines()
    assert [line.partition(": ")[0] for line in lines] == ["error", "warning", "warning"]


@pytest.mark.parametrize("command", [("inspect",), ("verify",), ("run", "--prompt", "x")])
def test_names_in_an_artifact_are_shown_only(
    optc: Optc, tmp_path: Path, command: tuple[str, ...]
) -> None:
    path = write_toy(tmp_path / "a").path
    forge(path, lambda m: m.update(name=EVIL, pipeline=EVIL))
    forge(path, lambda m: m["engines"][0].update(name=EVIL, backend=EVIL, data={"x": EVIL}))
    outcome = optc(*command, path)
    assert not set("\x1b\x07\x9b\u202e") & set(outcome.out + outcome.err)


@pytest.mark.parametrize(
    "damage",
    [
        "",
        "[]",
        "[" * 100_000,
        '{"passes": {}}',
        '{"passes": [{"name": "x"}]}',
        '{"passes": [{"name": "x", "count": 1, "seconds": "1"}]}',
        '{"gates": [{"name": "x"}]}',
        '{"gates": [{"name": [], "value": 1, "bound": 1, "passed": true, "measured_on": "x"}]}',
        '{"gates": [{"name": "x", "value": 1, "bound": 1, "passed": 1, "measured_on": "x"}]}',
        '{"gates": 7}',
        '{"x": NaN}',
    ],
)
def test_a_damaged_report_hides_nothing_of_the_manifest(
    optc: Optc, tmp_path: Path, damage: str
) -> None:
    path = write_toy(tmp_path / "a").path
    (path / "report.json").write_text(damage)
    outcome = optc("inspect", path)
    assert outcome.code == 0
    assert "toy (llama)" in outcome.out
    assert outcome.err.startswith(f"warning: the report is left out: {path}/report.json: ")
    value = optc("inspect", path, "--json").json
    assert value["manifest"]["name"] == "toy"
    assert value["report"] == {}
    assert len(value["warnings"]) == 1


def test_a_report_that_is_whole_is_shown(optc: Optc, tmp_path: Path) -> None:
    path = write_toy(tmp_path / "a").path
    gate = {"name": "kl", "value": 0.5, "bound": None, "passed": None, "measured_on": "engine"}
    done = {"name": "kv-cache", "count": 2, "seconds": 1, "details": {"full": 2}}
    (path / "report.json").write_text(json.dumps({"gates": [gate], "passes": [done]}))
    outcome = optc("inspect", path)
    assert "full 2" in outcome.out
    assert outcome.err == ""
