"""``-q``, ``-v`` and ``--log-file``."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from optc.system.logs.logger import ROOT, logger
from tests.cli.conftest import Optc
from tests.runtime.support.toy import ToyExecutable

RUN = ("--prompt", "hi", "--max-tokens", "2", "--ignore-eos")


def test_levels(optc: Optc, talker: Path) -> None:
    plain, once, twice = (optc("run", talker, *RUN, *more).err for more in ((), ("-v",), ("-vv",)))
    assert "optc.runtime" not in plain
    assert "· optc.runtime.loader: loaded <optc.Engine" in once
    assert "input_processor" not in once
    assert "· optc.runtime.submitting.input_processor: a request of 3 tokens, 2 new" in twice


def test_quiet_commands_show_results_only(
    optc: Optc, talker: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    loud = optc("run", talker, *RUN)
    assert "2 new ones" in loud.err
    quiet = optc("run", talker, *RUN, "-q")
    assert (quiet.out, quiet.err) == (loud.out, "")
    assert "· hashed" in optc("verify", talker).err
    assert optc("verify", talker, "--quiet").err == ""
    assert "error: " in optc("run", talker / "absent", *RUN, "-q").err
    monkeypatch.setenv("OPTC_QUIET", "1")
    assert optc("run", talker, *RUN).err == ""
    assert optc("verify", talker).err == ""


def test_a_file_has_all_of_it_and_is_appended_to(
    optc: Optc, talker: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "optc.log"
    first = optc("run", talker, *RUN, "--log-file", path)
    assert "optc.runtime" not in first.err
    assert path.read_text("utf-8").count("DEBUG optc.runtime.submitting.input_processor") == 1
    monkeypatch.setenv("OPTC_LOG_FILE", str(path))
    optc("run", talker, *RUN)
    assert path.read_text("utf-8").count("DEBUG optc.runtime.submitting.input_processor") == 2

    def explode(self: object, batch: object) -> None:
        raise ArithmeticError("the kernel broke")

    monkeypatch.setattr(ToyExecutable, "step", explode)
    assert optc("run", talker, *RUN).code == 70
    text = path.read_text("utf-8")
    assert "ERROR optc.runtime.loop.worker: the engine failed\nTraceback" in text
    assert "ArithmeticError: the kernel broke" in text
    assert "ERROR optc.cli: the engine failed" in text


def test_what_cannot_be_written(optc: Optc, talker: Path, tmp_path: Path) -> None:
    outcome = optc("run", talker, *RUN, "--log-file", tmp_path / "absent/optc.log")
    assert outcome.code == 2
    assert "--log-file: cannot write " in outcome.err


def test_a_command_leaves_nothing_behind(optc: Optc, talker: Path, tmp_path: Path) -> None:
    optc("run", talker, *RUN, "-vv", "--log-file", tmp_path / "optc.log")
    root = logging.getLogger(ROOT)
    assert [type(handler) for handler in root.handlers] == [logging.NullHandler]
    assert root.level == logging.NOTSET


def test_control_characters_are_spelled_out(optc: Optc, talker: Path) -> None:
    odd = talker.with_name("a\x1b[31m")
    talker.rename(odd)
    err = optc("run", odd, *RUN, "-v").err
    assert "\x1b" not in err
    assert "x1b[31m" in err


def test_the_library_says_nothing_by_itself(capfd: pytest.CaptureFixture[str]) -> None:
    logger("optc.somewhere").error("nobody listens")
    assert capfd.readouterr() == ("", "")
