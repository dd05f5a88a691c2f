"""docs/how-to/add-an-option.md: an option of a compile is a field, and its use."""

from __future__ import annotations

import sys
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

import optc as package
from optc.backend import BuildOptions
from optc.cli.main import COMMANDS
from optc.compiling.resolving.options import ResolvedOptions, build_limits
from optc.compiling.text import compile as compile_module
from optc.compiling.text import stages
from optc.system import options as optc_options
from optc.system.options import CompileOptions
from optc.system.options.option import option
from tests.cli.conftest import Optc
from tests.support.stub import StubBackend
from tests.system.options import test_compile_options as held


@dataclass(frozen=True, kw_only=True)
class WithDummy(CompileOptions):
    """Step 1: a field."""

    most_rows: int = option(512, "Most rows of a step.", kind="count", metavar="N")


def dummy_limits(options: ResolvedOptions, model_context: int) -> BuildOptions:
    """Step 2: its use."""
    assert isinstance(options.asked, WithDummy)
    return replace(build_limits(options, model_context), max_rows=options.asked.most_rows)


def test_it_reaches_the_compile_and_leaves_nothing(
    optc: Optc,
    stub: StubBackend,
    quick_import: None,
    tiny_model: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    call = ("compile", tiny_model, "--recipe", "fp32", "--no-gates")
    command = f"optc.cli.commands.{COMMANDS['compile']}"
    with monkeypatch.context() as patched:
        patched.setattr(optc_options, "CompileOptions", WithDummy)
        patched.setattr(compile_module, "CompileOptions", WithDummy)
        patched.setattr(stages, "build_limits", dummy_limits)
        patched.delitem(sys.modules, command, raising=False)  # it reads the class at import
        assert "--most-rows N" in optc("compile", "--help").out
        assert optc(*call, "-o", tmp_path / "a", "--most-rows", "64").code == 0
        package.compile(
            tiny_model, "fp32", tmp_path / "b", backend="stub", no_gates=True, most_rows=32
        )
        assert [options.max_rows for _, options in stub.built] == [64, 32]
        assert optc(*call, "-o", tmp_path / "c", "--most-rows", "0").code == 2
    sys.modules.pop(command, None)
    assert "most-rows" not in optc("compile", "--help").out
    refused = optc(*call, "-o", tmp_path / "c", "--most-rows", "64")
    assert (refused.code, (tmp_path / "c").exists()) == (2, False)
    assert "--most-rows" in refused.err


def test_a_field_that_the_page_of_the_command_line_lacks_is_noticed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(held, "CompileOptions", WithDummy)
    with pytest.raises(AssertionError, match="--most-rows N"):
        held.test_the_page_of_the_command_line_lists_them_all()
