"""A compile that is killed in its calibrations goes on there, to the same artifact."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.end_to_end.test_main_job import ROOT

MODEL = ROOT / "examples/models/pycode-draft"
OPTIONS = [
    *("--recipe", "mixed-4", "--no-gates", "--json"),
    *("--set", "allocate-bits.windows=2", "--set", "allocate-bits.window_tokens=64"),
    *("--set", "propagate-errors.windows=4", "--set", "propagate-errors.window_tokens=64"),
]
#: Kills itself once it has saved an entry whose key has this in it; "" is none.
PROGRAM = """
import os, signal, sys
from optc.cli.main import run
from optc.passes.quantize.propagate import checkpoints
from optc.proof.reference.calibration_cache import CalibrationCache
checkpoints.EVERY_S = 0.0
save = CalibrationCache.save
def killing(self, key, *given):
    save(self, key, *given)
    if sys.argv[1] and sys.argv[1] in key:
        os.kill(os.getpid(), signal.SIGKILL)
CalibrationCache.save = killing
sys.exit(run(sys.argv[2:]))
"""


def compiled(output: Path, cache: Path | str, killed_after: str = "") -> str | None:
    """The artifact's digest; None if the compile was killed."""
    given = ["compile", str(MODEL), "-o", str(output), "--force", *OPTIONS]
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, killed_after, *given],
        capture_output=True,
        text=True,
        check=False,
        cwd=ROOT,
        env=os.environ | {"OPTC_CALIBRATION_CACHE": str(cache)},
    )
    if killed_after:
        assert done.returncode == -signal.SIGKILL, done.stderr
        return None
    assert done.returncode == 0, done.stderr
    digest: str = json.loads(done.stdout)["digest"]
    return digest


@pytest.mark.long
@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no SIGKILL")
def test_killed_in_each_stage_it_ends_in_the_same_artifact(tmp_path: Path) -> None:
    cache, output = tmp_path / "cache", tmp_path / "artifact"
    for entry in ("-part-errors-", "-part-kl-", "-streams-"):
        compiled(output, cache, killed_after=entry)
        assert any(entry in place.name for place in cache.iterdir())
    assert not output.exists()
    assert compiled(output, cache) == compiled(tmp_path / "plain", "none")
    report = json.loads((output / "report.json").read_text())
    facts = {one["name"]: one["facts"] for one in report["passes"]}
    assert facts["allocate-bits"]["from_cache"]
    assert facts["propagate-errors"]["resumed_after_blocks"] >= 1
