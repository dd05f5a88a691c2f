"""What tests cost is counted with their children and fixtures, in workers too, and added up."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.cost.cpu_times import tables

ROOT = Path(__file__).parents[3]
BUSY = """
import subprocess, sys, time
import pytest

BURN = "import time\\nwhile time.process_time() < 0.3: pass"

@pytest.fixture
def burnt():
    subprocess.run([sys.executable, "-c", BURN], check=True)

def test_dear(burnt): pass
def test_cheap(): pass
"""


def test_costs_are_added_up_by_folder_and_file() -> None:
    found = tables({"tests/a/b/c/test_x.py::one": 40.0, "tests/a/b/test_y.py::two[1]": 20.0})
    assert found[0] == "1.0 minutes for 2 tests, without collecting"
    assert found[2].split() == ["60.0", "tests/a/b"]
    assert found[4].split() == ["40.0", "tests/a/b/c/test_x.py"]
    assert found[-1].split() == ["20.0", "tests/a/b/test_y.py::two[1]"]


@pytest.mark.parametrize("workers", [(), ("-n", "1")], ids=["alone", "worker"])
def test_children_of_fixtures_are_counted(workers: tuple[str, ...], tmp_path: Path) -> None:
    (tmp_path / "test_busy.py").write_text(BUSY)
    plugins = ["-p", "tests.support.cost.cpu_times", "-p", "no:cacheprovider"]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *plugins, *workers, "test_busy.py"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=True,
    )
    found = re.findall(r"(\d+\.\d)  \S+::(\w+)", done.stdout)
    costs = {name: float(cost) for cost, name in found}
    assert costs["test_dear"] >= 0.3
    assert costs["test_cheap"] < costs["test_dear"]
