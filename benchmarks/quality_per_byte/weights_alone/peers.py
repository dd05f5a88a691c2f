"""Peers' points: each peer's quantizer runs in an environment of its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.peers import environments, ik_llama
from benchmarks.peers.tools import FailedError
from benchmarks.proof.numpy_llama import read_tensors
from benchmarks.quality_per_byte.evaluate import CALIBRATION_WINDOWS, Evaluator, windows_of
from benchmarks.quality_per_byte.points import Point, Stored, count

WORKERS = Path(__file__).parent / "workers"


@dataclass(frozen=True)
class Peer:
    """A tool that quantizes.

    Attributes:
        name: As the result names it.
        environment: Of `environments.PACKAGES`.
        worker: Its file in ``workers``.
    """

    name: str
    environment: str
    worker: str


PEERS = (
    Peer("llama.cpp", "llama.cpp", "llama_cpp_formats.py"),
    Peer("ik_llama.cpp", ik_llama.NAME, "ik_llama_formats.py"),
    Peer("openvino", "openvino-genai", "openvino_formats.py"),
    Peer("onnxruntime", "onnxruntime-quantizers", "onnxruntime_formats.py"),
    Peer("llm-compressor", "llm-compressor", "llm_compressor_formats.py"),
)


def points(
    peer: Peer, evaluator: Evaluator, calibration: Path, root: Path, only: list[str]
) -> tuple[list[Point], list[dict[str, str]]]:
    """The points of a peer's formats, and the formats that could not be made, with the reason.

    Answers stay in ``root``: a later run evaluates none of them twice.
    """
    output = root / "quality" / peer.name
    output.mkdir(parents=True, exist_ok=True)
    try:
        _run(peer, evaluator, calibration, root, only)
    except (subprocess.CalledProcessError, OSError, FailedError) as error:
        failed = [{"who": peer.name, "label": "the whole tool", "reason": str(error)[-300:]}]
    else:
        failed = []
    found: list[Point] = []
    for path in sorted(output.glob("*/about.json")):
        about = json.loads(path.read_text())
        if only and not any(text in about["label"] for text in only):
            continue
        if "failed" in about:
            failed.append({"who": peer.name, "label": about["label"], "reason": about["failed"]})
        else:
            found.append(_point(peer, evaluator, path.parent, about))
    return found, failed


def _run(peer: Peer, evaluator: Evaluator, calibration: Path, root: Path, only: list[str]) -> None:
    binaries = environments.ensure(peer.environment, root)
    calibrating = windows_of(evaluator.model, calibration, CALIBRATION_WINDOWS)
    tokens = {"heldout": evaluator.windows, "calibration": calibrating}
    output = root / "quality" / peer.name
    for name, ids in tokens.items():
        np.save(output / f"{name}.npy", ids)
    request = output / "request.json"
    request.write_text(
        json.dumps(
            {
                "model": str(evaluator.model.resolve()),
                "output": str(output.resolve()),
                "calibration_text": str(calibration.resolve()),
                "only": only,
                **{name: str((output / f"{name}.npy").resolve()) for name in tokens},
            }
        )
    )
    settings = dict(os.environ)
    if peer.name == "llama.cpp":
        settings["LLAMA_IMATRIX"] = str(environments.llama_imatrix(root))
    if peer.name == ik_llama.NAME:
        settings["IK_LLAMA_TOOLS"] = str(ik_llama.tools(binaries))
        settings["IK_LLAMA_REVISION"] = ik_llama.REVISION
    command = [str(binaries / "python"), str(WORKERS / peer.worker), str(request)]
    subprocess.run(command, check=True, env=settings, stdout=sys.stderr)


def _point(peer: Peer, evaluator: Evaluator, folder: Path, about: dict[str, Any]) -> Point:
    """Evaluate an answer; its weights or logits are then removed, its figures stay."""
    known = folder / "figures.json"
    if not known.exists():
        known.write_text(json.dumps(_figures(evaluator, folder)))
    shapes = {name: array.shape for name, array in read_tensors(evaluator.model).items()}
    stored = {name: Stored(*entry) for name, entry in about["stored"].items()}
    size = count(stored, shapes)
    note = ", ".join(text for text in (about["version"], about["note"]) if text)
    return Point(peer.name, about["label"], about["numerics"], size.bytes, size.bits_all,
                 size.bits_body, json.loads(known.read_text()), size.formats, note)  # fmt: skip


def _figures(evaluator: Evaluator, folder: Path) -> dict[str, float]:
    logits, weights = folder / "logits.npy", folder / "weights.npz"
    if logits.exists():
        figures = evaluator.of_logits(np.load(logits, mmap_mode="r"))
        logits.unlink()
    else:
        with np.load(weights) as file:
            figures = evaluator.of_weights(dict(file))
        weights.unlink()
    return figures
