"""docs/how-to: numbers of files, paths, links, commands and examples are those that exist."""

from __future__ import annotations

import ast
import re
import textwrap
from pathlib import Path

import click
import pytest

from optc.cli.main import COMMANDS, cli
from optc.ir.pipeline.record import PassRecord
from tests.how_to import PAGES, ROOT
from tests.support.models import Dense, dense_model
from tests.support.pipelines import pipeline_of

#: Most files that each addition may touch.
MOST = {"add-an-option": 2, "add-a-pass": 3, "add-an-operator": 4, "add-a-backend": 3}
NAMES = sorted(path.stem for path in PAGES.glob("*.md"))


def text(name: str) -> str:
    return (PAGES / f"{name}.md").read_text(encoding="utf-8")


def python(name: str) -> list[str]:
    blocks = re.findall(r"^ *```python\n(.*?)```", text(name), re.M | re.S)
    return [textwrap.dedent(block) for block in blocks]


@pytest.mark.parametrize("name", sorted(MOST))
def test_the_number_of_files_is_that_of_the_table(name: str) -> None:
    section = text(name).partition("\n## Files\n")[2].partition("\n## ")[0]
    (stated,) = re.findall(r"^Files.*?: (?:at most )?(\d+)", section)
    table = section.partition("| file |")[2].partition("\n\n")[0]
    rows = table.splitlines()[2:]
    assert len(rows) == int(stated) <= MOST[name]


@pytest.mark.parametrize("name", NAMES)
def test_paths_and_links_exist(name: str) -> None:
    spans = re.findall(
        r"`((?:optc|backends|passes|tests|docs|examples|benchmarks)/[^`]*)`", text(name)
    )
    for span in spans:
        known = re.split(r"[^/]*[<*]", span)[0]  # as far as no name of the reader's begins
        assert (ROOT / known).exists(), span
    for link in re.findall(r"\]\((?!https:)([^)#]+)", text(name)):
        assert (PAGES / link).exists(), link


@pytest.mark.parametrize("name", NAMES)
def test_options_of_commands_exist(name: str) -> None:
    for command, arguments in re.findall(r"\boptc ([a-z]+)\b([^`\n]*)", text(name)):
        if command not in COMMANDS:
            continue
        found = cli.get_command(click.Context(cli), command)
        assert found is not None
        known = {o for p in found.params if isinstance(p, click.Option) for o in p.opts}
        used = set(re.findall(r"(?<!\S)--?[a-z][a-z-]*", arguments.partition("#")[0]))
        assert used <= known, command


@pytest.mark.parametrize("name", NAMES)
def test_lines_and_examples(name: str) -> None:
    lines = (
        line for line in text(name).splitlines() if not line.startswith("|")
    )  # rows cannot wrap
    assert max(map(len, lines)) <= 100
    for block in python(name):
        ast.parse(block)


def test_the_examples_of_a_lone_pass_and_an_instrument_run(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    alone, instrument = python("debug-a-pass")
    values = {"model": dense_model(Dense()), "folder": tmp_path, "PassRecord": PassRecord}
    exec("from __future__ import annotations\n" + alone, values)
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "00-fuse-gate-up.onnx.txt",
        "01-kv-cache.onnx.txt",
    ]
    assert "optc.PagedAttention" in capsys.readouterr().out
    values["pipeline"] = pipeline_of("fuse-residual-norm")
    exec("from __future__ import annotations\n" + instrument, values)
    assert capsys.readouterr().out.startswith("0 fuse-residual-norm ")


def test_the_architecture_links_every_page() -> None:
    page = (ROOT / "docs/architecture.md").read_text(encoding="utf-8")
    assert set(re.findall(r"\(how-to/([a-z-]+)\.md\)", page)) == set(NAMES)
