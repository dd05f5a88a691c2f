"""A task of another distribution: found, and its measures are gates of recipes."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

MODULE = """
from optc.artifact.tasks.task import Measure, Task

TASK = Task(
    name="ocr",
    face="tensors",
    reference="the module itself",
    roles={"target": "tensors"},
    measures=(Measure("line_errors", "lines that are read otherwise", "pages", True, 0),),
)
"""
SCRIPT = """
from optc import registry
from optc.compiling.ladder.losses import loss_of
from optc.proof.gates.measure import judge
from optc.compiling.recipes.recipe import load_recipe

assert {"ocr", "text-generation"} <= registry.tasks().keys(), registry.tasks()
recipe = load_recipe("fp32", gates=["line_errors=0.1"])
assert recipe.gates["line_errors"] == 0.1
assert judge("line_errors", 0.2, 0.1).passed is False
assert loss_of("line_errors", 0.2) == 0.2
"""


def test_a_task_of_another_distribution(tmp_path: Path) -> None:
    (tmp_path / "acme_ocr.py").write_text(MODULE)
    info = tmp_path / "acme_ocr-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: acme-ocr\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[optc.tasks]\nocr = acme_ocr:TASK\n")
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT],
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(tmp_path), *sys.path])},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
