"""ONNX Runtime reports nothing and writes no session files beside optc."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

#: What makes ONNX Runtime report nothing by itself: its own variables and those of test services.
QUIET = ("ORT_DISABLE_TELEMETRY", "ORT_RUNNING_UNIT_TESTS", "CI", "GITHUB_ACTIONS")


@pytest.mark.parametrize("chosen", [None, "0"])
def test_nothing_is_reported_unless_the_user_wants_it(chosen: str | None, tmp_path: Path) -> None:
    environment = {k: v for k, v in os.environ.items() if k not in QUIET}
    if chosen is not None:
        environment["ORT_DISABLE_TELEMETRY"] = chosen
    code = "import os, optc; print(os.environ['ORT_DISABLE_TELEMETRY'])"
    if chosen is None:  # elsewhere it would report
        code += "; import onnxruntime"
    homes = dict.fromkeys(("TMPDIR", "HOME", "XDG_CACHE_HOME"), str(tmp_path))
    done = subprocess.run(
        [sys.executable, "-c", code],
        env=environment | homes,
        check=True,
        capture_output=True,
        text=True,
    )
    assert done.stdout.strip() == (chosen or "1")
    assert not list(tmp_path.iterdir())
