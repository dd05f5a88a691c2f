"""Every format for a moment: no input may crash, hang, or raise what is not optc's.

`python -m benchmarks.fuzz` does the same with thousands of inputs.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.fuzz.formats import FORMATS
from tests.fuzz.outcome import ROOT

#: Formats that share what is long in the import share a process; how many inputs each gets.
GROUPS = {
    ("config", "tokenizer-files", "safetensors"): 100,
    ("manifest-bytes", "manifest-json", "manifest-digest", "report", "artifact-tokenizer"): 300,
    ("chat", "request", "recipe", "text"): 300,
    ("adapter", "batch-line", "layout", "signature", "wav"): 300,
    ("gguf", "onnx", "pickled"): 60,
    ("registry", "hub"): 100,
}


def test_every_format_is_tried() -> None:
    assert sorted(name for names in GROUPS for name in names) == sorted(FORMATS)


@pytest.mark.long
@pytest.mark.parametrize("names", GROUPS, ids=lambda names: names[0])
def test_no_input_of_a_short_run_is_a_finding(
    names: tuple[str, ...], drafting_artifact: Callable[[str], Path], tmp_path: Path
) -> None:
    # Seconds beyond any doubt: a test never depends on time.
    options = ["--inputs", GROUPS[names], "--limit", 120, "--findings", tmp_path / "findings"]
    if any("artifact" in FORMATS[name].needs for name in names):
        options += ["--artifact", drafting_artifact("int8")]
    formats = [part for name in names for part in ("--format", name)]
    command = [sys.executable, "-m", "benchmarks.fuzz", *formats, *options]
    command += ["--json", tmp_path / "result.json"]
    ended = subprocess.run(
        list(map(str, command)), cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert ended.returncode == 0, ended.stdout + ended.stderr
    counts = json.loads((tmp_path / "result.json").read_text())["formats"]
    assert {name: counts[name]["inputs"] for name in names} == dict.fromkeys(names, GROUPS[names])
    assert [name for name in names if not counts[name]["accepted"]] == []
