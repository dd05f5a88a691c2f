"""Measure a vision transformer beside ONNX Runtime, OpenVINO and torch.compile in one run.

    python -m benchmarks.vision [FOLDER] [--workdir DIR] [--rounds 5] [--only TEXT]…
                                [--images 64] [--threads N] [--json FILE]

FOLDER is one of transformers, of a model of images; none is ViT-Ti/16 with random weights, which is
made. Every engine gets the same random arrays. First their outputs are compared with PyTorch
float32; then all are timed in turns, on one image a call and on eight. Figures are medians over
rounds, milliseconds an image. An engine that cannot be made or started is listed with its reason.
Run it on an otherwise idle machine.
"""

from __future__ import annotations

import argparse
import json
import os
import tempfile
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.encoders.models import Maker
from benchmarks.encoders.rows import Rows, open_rows, table
from benchmarks.peers.measuring import Worker
from optc.importer.tensors.encoder import import_encoder

_WORKER = Path(__file__).parent / "workers" / "image_worker.py"
_HEAD = ("engine", "ms an image, alone", "ms an image of 8", "cosine, mean", "same class")
#: Calls of a turn, by the images of each.
_CALLS = {1: 8, 8: 2}
#: Images that static quantization is calibrated by.
_CALIBRATION = 64


def arguments(given: list[str] | None = None) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(prog="benchmarks.vision", description=__doc__)
    parser.add_argument("folder", type=Path, nargs="?")
    parser.add_argument("--workdir", type=Path, default=Path(".vision"))
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--only", action="append", help="rows whose label contains TEXT")
    parser.add_argument("--images", type=int, default=64)
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--json", type=Path)
    return parser.parse_args(given)


def quality(found: Any, wanted: Any) -> dict[str, float]:
    """Mean cosine of outputs [N, …], and the share of images whose largest one is the same."""
    one, other = (x.reshape(len(x), -1).astype(np.float64) for x in (found, wanted))
    lengths = np.linalg.norm(one, axis=1) * np.linalg.norm(other, axis=1)
    same = one.argmax(axis=1) == other.argmax(axis=1)
    return {
        "cosine_mean": float(((one * other).sum(axis=1) / lengths).mean()),
        "class_agreement": float(same.mean()),
    }


def measure_round(rows: Rows, files: dict[int, Path]) -> None:
    """One round: engines one after the other, for each number of images."""
    for count, calls in _CALLS.items():
        for worker, figures in rows.values():
            seconds = worker.ask("time", images=str(files[count]), calls=calls)["seconds"]
            figures[f"ms_{count}"].append(1e3 * seconds / calls / count)


def main() -> None:
    """Make, compare and time."""
    asked = arguments()
    folder = asked.folder or random_tiny(asked.workdir / "vit-tiny")
    source = import_encoder(folder)
    if source.reference is None:
        raise SystemExit(f"{folder} has no reference")
    (spec,), rng = source.interface.inputs, np.random.default_rng(0)
    count = max(asked.images, *_CALLS)
    shape = (count + _CALIBRATION, *spec.dims[1:])
    drawn = rng.standard_normal(shape).astype(np.float32)
    images, samples = drawn[:count], [{spec.name: x[None]} for x in drawn[count:]]
    name = source.interface.outputs[0].name
    parts = [source.reference({spec.name: images[i : i + 8]})[name] for i in range(0, count, 8)]
    wanted = np.concatenate([np.asarray(part) for part in parts])
    maker = Maker(folder, asked.workdir, asked.threads, _WORKER, samples)
    with ExitStack() as stack, tempfile.TemporaryDirectory() as scratch:
        files = {n: Path(scratch) / f"images-{n}.npy" for n in (*_CALLS, count)}
        for n, file in files.items():
            np.save(file, images[:n])

        def figures(worker: Worker) -> dict[str, Any]:
            found = Path(scratch) / "found.npy"
            worker.ask("run", images=str(files[count]), file=str(found))
            return {**{f"ms_{n}": [] for n in _CALLS}, **quality(np.load(found), wanted)}

        results, rows = open_rows(stack, maker.makers(), asked.only, figures)
        for _ in range(asked.rounds):
            measure_round(rows, files)
    times = {f"ms_{n}": ".2f" for n in _CALLS}
    print(table(_HEAD, results, times, {"cosine_mean": ".5f", "class_agreement": ".3f"}))
    if asked.json:
        asked.json.write_text(json.dumps({"threads": asked.threads, "rows": results}, indent=1))


def random_tiny(folder: Path) -> Path:
    """A folder of ViT-Ti/16 of 224 pixels with seeded random weights, for speed."""
    if not (folder / "config.json").exists():
        import torch
        from transformers import ViTConfig, ViTForImageClassification

        torch.manual_seed(0)
        sizes = {"hidden_size": 192, "intermediate_size": 768, "num_attention_heads": 3}
        config = ViTConfig(num_hidden_layers=12, num_labels=1000, **sizes)
        ViTForImageClassification(config).save_pretrained(folder)
    return folder


if __name__ == "__main__":
    main()
