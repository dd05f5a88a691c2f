"""TensorRT engines of a model for GPUs that are not here: what was built, and how long it took.

    python -m benchmarks.proof.tensorrt_builds MODEL [--recipes trt-fp16,trt-int4] [--targets sm_89]
        [--calibration FILE] [--quality TEXT] [--json FILE]

Each target may be several architectures in one engine (``sm_80+sm_89``). With ``--quality`` the
lowered model is judged on a text by ONNX Runtime on the CPU, once a recipe. Times are those of this
machine, whatever else it does; layers, types and bytes do not depend on it.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from pathlib import Path
from typing import Any

import optc
from optc.errors import OptcError

RECIPES = "trt-fp16,trt-int8,trt-int4,trt-int8-qdq,trt-fp8,trt-nvfp4"
TARGETS = "sm_80+sm_86+sm_89+sm_120,sm_89+sm_120,sm_120"
SHOWN = ("kl_mean", "kl_p99", "top1_agreement", "perplexity_ratio")


def build(
    model: Path, recipe: str, target: str, calibration: Path | None, context: int
) -> dict[str, Any]:
    """One build: figures of its report, or why there is no engine."""
    row: dict[str, Any] = {"recipe": recipe, "target": target}
    with tempfile.TemporaryDirectory() as folder:
        try:
            artifact = optc.compile(
                model,
                recipe=recipe,
                output=Path(folder) / "artifact",
                backend=f"tensorrt:{target}",
                calibration=calibration,
                no_gates=True,
                max_context=context,
            )
        except OptcError as error:
            return row | {"refused": error.message}
        return row | _figures(_report(artifact.path))


def _report(artifact: Path) -> dict[str, Any]:
    report: dict[str, Any] = json.loads((artifact / "report.json").read_text())
    build: dict[str, Any] = report["engines"][0]["build"]
    return build


def _figures(report: dict[str, Any]) -> dict[str, Any]:
    builder = report["builder"]
    return {
        "engine_bytes": builder["engine_bytes"],
        "builder_seconds": round(builder["builder_seconds"], 1),
        "builder_peak_bytes": builder["builder_peak_bytes"],
        "tensorrt": f"{builder['package']} {builder['version']}",
        "signature": report["engine"]["signature"],
        "profiles": [
            {
                "name": one["name"],
                "kernels": one["kernels"],
                "fused_attention": _share(one["fused_attention"], "fused"),
                "matmul_types": one["matmul_types"],
                "kv_in_place": _share(one["kv_in_place"], "in_place"),
            }
            for one in report["engine"]["profiles"]
        ],
    }


def _share(counts: dict[str, Any], key: str) -> str:
    return f"{counts[key]}/{counts['of']}"


def quality(model: Path, recipe: str, calibration: Path | None, text: Path) -> dict[str, Any]:
    """The gates' figures of the lowered model, without their verdicts."""
    with tempfile.TemporaryDirectory() as folder:
        artifact = optc.compile(
            model,
            recipe=recipe,
            output=Path(folder) / "artifact",
            backend="tensorrt:sm_120",  # the one that has all types
            calibration=calibration,
            eval_text=text,
            gate=[f"{name}=none" for name in SHOWN],
            allow_unmeasured=True,
        )
        report = json.loads((artifact.path / "report.json").read_text())
    measured = {g["name"]: g["value"] for g in report["gates"] if g["value"] is not None}
    return {"recipe": recipe} | {name: measured[name] for name in SHOWN}


def main() -> None:
    """Build all and print a line for each."""
    parser = argparse.ArgumentParser(prog="benchmarks.proof.tensorrt_builds", description=__doc__)
    parser.add_argument("model", type=Path)
    parser.add_argument("--recipes", default=RECIPES, help="by commas")
    parser.add_argument("--targets", default=TARGETS, help="by commas")
    parser.add_argument("--context", type=int, default=512)
    parser.add_argument("--calibration", type=Path)
    parser.add_argument("--quality", type=Path, help="a text to judge the lowered models on")
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    rows = []
    for recipe in args.recipes.split(","):
        for target in args.targets.split(",") if not args.quality else ():
            rows.append(build(args.model, recipe, target, args.calibration, args.context))
            print(json.dumps(rows[-1]), flush=True)
        if args.quality:
            rows.append(quality(args.model, recipe, args.calibration, args.quality))
            print(json.dumps(rows[-1]), flush=True)
        if args.json:
            args.json.write_text(json.dumps(rows, indent=1) + "\n")


if __name__ == "__main__":
    main()
