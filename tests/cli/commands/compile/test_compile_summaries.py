"""optc compile --markdown and --junit: what the gates said, whether or not they hold."""

from __future__ import annotations

from pathlib import Path
from xml.etree import ElementTree

import pytest

from tests.cli.commands.compile.test_compile_gates import fake_gates
from tests.cli.conftest import Optc

__all__ = ["fake_gates"]


@pytest.fixture
def files(tmp_path: Path) -> tuple[object, ...]:
    return ("--markdown", tmp_path / "s.md", "--junit", tmp_path / "j.xml")


def cases(tmp_path: Path) -> dict[str, list[str]]:
    """What stands in each test case, by its name."""
    root = ElementTree.parse(tmp_path / "j.xml").getroot()
    return {c.attrib["name"]: [child.tag for child in c] for c in root.findall(".//testcase")}


def test_gates_that_hold(
    compile_tiny: Optc,
    fake_gates: dict[str, float | None],
    files: tuple[object, ...],
    tmp_path: Path,
) -> None:
    fake_gates |= {"kl_mean": 0.0, "decode_speedup": 2.5}
    gate = ("--gate", "kl_mean=0.5")
    assert compile_tiny(*files, *gate, gates=True).code == 0
    assert cases(tmp_path)["kl_mean"] == []
    text = (tmp_path / "s.md").read_text()
    assert "| passed | gates of target | kl\\_mean | 0, bound 0.5 |" in text
    assert "| target | decode\\_speedup | 2.5 |" in text
    assert "out/a" in text.splitlines()[0]


def test_gates_that_fail(
    compile_tiny: Optc,
    fake_gates: dict[str, float | None],
    files: tuple[object, ...],
    tmp_path: Path,
) -> None:
    fake_gates |= {"kl_mean": 0.75}
    assert compile_tiny(*files, "--gate", "kl_mean=0.5", gates=True).code == 4
    assert cases(tmp_path)["kl_mean"] == ["failure"]
    assert "0.75 is above the bound 0.5" in (tmp_path / "s.md").read_text()


def test_gates_without_a_verdict_fail_unless_they_are_allowed(
    compile_tiny: Optc,
    fake_gates: dict[str, float | None],
    files: tuple[object, ...],
    tmp_path: Path,
) -> None:
    fake_gates |= {"decode_speedup": None}
    bound = (*files, "--gate", "decode_speedup=2")
    assert compile_tiny(*bound, gates=True).code == 4
    assert cases(tmp_path)["decode_speedup"] == ["failure"]
    assert compile_tiny(*bound, "--allow-unmeasured", gates=True).code == 0
    assert cases(tmp_path)["decode_speedup"] == ["skipped"]


def test_a_file_that_cannot_be_written_is_found_before_the_compile(
    compile_tiny: Optc, no_import: None, tmp_path: Path
) -> None:
    found = compile_tiny("--junit", tmp_path / "absent/j.xml")
    assert (found.code, "--junit: there is no folder" in found.err) == (2, True)
