"""Engines one after the other: install, convert, run, compare; what fails has its reason."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any

from benchmarks.peers import comparison, conversion, environments, gguf_models, measuring, variants
from benchmarks.peers.subjects import Subject, real_subject
from benchmarks.peers.tools import FailedError
from benchmarks.peers.variants import Variant
from benchmarks.quality_per_byte.curve import engines_verdict
from benchmarks.quality_per_byte.engines import catalogue
from benchmarks.quality_per_byte.engines.evaluate import Evaluator, windows_of
from benchmarks.quality_per_byte.points import Point
from benchmarks.quality_per_byte.result import Result

RESULTS = Path(__file__).resolve().parents[3] / "benchmarks/results"
#: 8,192 scored tokens: the same ones for everybody, so that differences are surer than figures.
WINDOWS = 16


def measure(args: argparse.Namespace) -> tuple[Result, dict[str, Any]]:
    """Measure what the command line asks for; the result and its verdict.

    Raises:
        InputError, UnavailableError: The model cannot be had, or the text cannot be read.
    """
    root: Path = args.workdir.resolve()
    subject = real_subject(args.model)
    windows = windows_of(subject, args.text, args.windows)
    evaluator = Evaluator(subject, windows, root / "quality")
    path = args.json or RESULTS / f"quality-per-byte-{subject.name}.json"
    result = Result(path, about(subject, args.text, windows.shape), engines_verdict)
    if subject.note:
        print(f"note: {subject.note}", file=sys.stderr)
    recipes = [] if args.only_peers else args.recipes
    peers = [] if args.only_ours else args.peers
    for variant in catalogue.chosen(recipes, peers, args.only):
        try:
            point = point_of(variant, subject, evaluator, root, args.threads)
        except (OSError, FailedError) as error:
            reason = str(error)[-300:]
            result.add([], [{"who": variant.peer, "label": variant.format, "reason": reason}])
            print(f"{variant.label}: {reason}", file=sys.stderr)
            continue
        result.add([point])
        print(f"{variant.label}: {point.bytes / 1e6:.1f} MB, KL {point.kl:.5f}", file=sys.stderr)
    return result, engines_verdict(result.points)


def about(subject: Subject, text: Path | None, shape: tuple[int, ...]) -> dict[str, Any]:
    """The conditions of the figures."""
    calibration = subject.calibration
    return {
        "model": subject.name,
        "note": subject.note,
        "text": "the gates' shipped text" if text is None else text.name,
        "windows": shape[0],
        "scored tokens": shape[0] * (shape[1] - 1),
        "calibration": None if calibration is None else calibration.name,
        "reference": "transformers, float32",
    }


def point_of(
    variant: Variant, subject: Subject, evaluator: Evaluator, root: Path, threads: int
) -> Point:
    """One engine.

    Raises:
        OSError, FailedError: It cannot be installed, converted or run.
    """
    binaries = environments.binaries(variant.peer, root)
    model = conversion.convert(variant, binaries, subject, root)
    command = variants.worker_command(variant, binaries, model.path, threads)
    with measuring.started(command) as worker:
        figures = evaluator.of_worker(worker, root)
        version = worker.about["version"]
    given = variant.format.endswith(gguf_models.GIVEN)
    bits = 8 * model.weight_bytes / comparison.parameter_count(subject.folder)
    settings = f", {variant.settings}" if variant.settings else ""
    return Point(variant.peer, variant.format, "given grid" if given else "engine",
                 model.weight_bytes, bits, None, figures,
                 note=f"{version}{settings}")  # fmt: skip
