"""docs/artifact.md names every field of the format, and none that there is not."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from msgspec import Struct, structs

from optc.artifact.manifest import FORMAT_VERSION, EngineEntry, Manifest
from optc.artifact.tasks.task import Measure, Task
from optc.runtime.executable.executable import StepInterface
from optc.runtime.executable.tensors_interface import TensorsInterface

PAGE = (Path(__file__).parents[2] / "docs/artifact.md").read_text("utf-8")


@pytest.mark.parametrize(
    "kind", [Manifest, Task, Measure, EngineEntry, StepInterface, TensorsInterface]
)
def test_fields_of_each_struct_are_explained(kind: type[Struct]) -> None:
    part = PAGE.partition(f"\n### {kind.__name__}\n")[2].partition("\n#")[0]
    assert re.findall(r"^\| `(\w+)` \|", part, re.M) == [f.name for f in structs.fields(kind)]


def test_the_version_is_that_of_the_code() -> None:
    assert f"This page describes version {FORMAT_VERSION} of the format" in " ".join(PAGE.split())


def test_the_task_that_it_shows_is_one() -> None:
    code = re.findall(r"```python\n(.*?)```", PAGE, re.S)
    scope: dict[str, Any] = {}
    exec(code[0], scope)
    assert scope["TASK"].gates == ("line_errors",)
