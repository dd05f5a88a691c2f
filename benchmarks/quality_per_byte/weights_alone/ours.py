"""optc's points: whole engines as their gates report them, and their weights alone."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

import optc
from benchmarks.proof.numpy_llama import read_tensors
from benchmarks.quality_per_byte.evaluate import Evaluator
from benchmarks.quality_per_byte.points import Point, Size, Stored, count
from optc.artifact.tasks.text_generation import TEXT_GENERATION
from optc.compiling.lowering.lowering import lower
from optc.compiling.recipes.recipe import load_recipe
from optc.compiling.resolving.options import resolve_options
from optc.errors import OptcError
from optc.importer.import_model import import_model
from optc.ir.quantized_rows import QuantizedPart, QuantizedTile
from optc.ir.sources import sources_of
from optc.ir.weights import LazyWeight
from optc.passes.numerics.affine import dequantize_rows
from optc.system.options import CompileOptions
from optc.system.options.option import with_changes
from optc.system.progress import no_progress

Array = np.ndarray[Any, Any]
_FIGURES = ("kl_mean", "kl_p99", "top1_agreement", "perplexity", "perplexity_ratio")


def weights_alone(model: Path, recipe: str, calibration: Path) -> tuple[dict[str, Array], Any]:
    """Float32 weights by the checkpoint's names as a recipe's passes leave them, and their sizes.

    A weight that is no tensor of the checkpoint's has its name in the graph.
    """
    asked = with_changes(
        CompileOptions(),
        {
            "recipe": recipe,
            "output": "unused",
            **_calibration(recipe, calibration),
            "set": _plain(recipe),
        },
    )
    resolved = resolve_options(model, asked, no_progress)
    graph = lower(import_model(resolved.source).model, resolved).model.graph
    weights: dict[str, Array] = {}
    sizes: dict[str, Stored] = {}
    for name, value in graph.initializers.items():
        tensor = value.const_value
        if not isinstance(tensor, LazyWeight):
            continue
        if isinstance(tensor, QuantizedPart):
            if not name.endswith(".quantized"):
                continue  # a scale or a zero point: read with the values
            tile = tensor.whole.read(0, tensor.whole.rows)
            rows = dequantize_rows(tile, tensor.whole.group_size)
            held, form = packed_bits(tile, tensor.whole.bits) // 8, f"int{tensor.whole.bits}"
        else:
            rows = np.asarray(tensor.read_rows(0, tensor.rows_shape[0]), np.float32)
            held, form = int(rows.size * tensor.dtype.itemsize), tensor.dtype.name.lower()
        for source in sources_of(value, len(rows)):
            key = source.name.removesuffix(".transposed")
            part = rows[source.start : source.stop]
            weights[key] = part
            sizes[key] = Stored(part.size, round(held * part.size / rows.size), form)
    return weights, sizes


def _plain(recipe: str) -> tuple[str, ...]:
    """Options that leave weights unrotated: they are put in the checkpoint's places."""
    names = {one.name for one in load_recipe(recipe).pipeline.passes}
    return tuple(f"{n}.block=0" for n in ("rotate-kv", "rotate-activations") if n in names)


def packed_bits(tile: QuantizedTile, bits: int) -> int:
    """Bits of a tile in an engine: values of ``bits``; scales of groups are float16, of channels
    float32; integer group scales and the zero points beside them are bytes."""
    grouped = tile.scales.ndim == 2
    total = int(tile.values.size) * bits + int(tile.scales.size) * (16 if grouped else 32)
    if tile.zero_points is not None:
        wide = tile.group_scales is not None
        total += int(tile.zero_points.size) * (8 if wide else bits)
    if tile.group_scales is not None:
        total += int(tile.group_scales.size) * 8
    return total


def points(
    evaluator: Evaluator, recipe: str, text: Path, calibration: Path
) -> tuple[list[Point], list[dict[str, str]]]:
    """A recipe's weights alone and its whole engine as the gates report it; what could not be
    made, with the reason."""
    try:
        weights, sizes = weights_alone(evaluator.model, recipe, calibration)
        source = read_tensors(evaluator.model)
        size = count(sizes, {name: array.shape for name, array in source.items()})
        found = [_engine(evaluator.model, recipe, text, calibration, size)]
    except (OptcError, ValueError) as error:
        return [], [{"who": "optc", "label": recipe, "reason": str(error)}]
    other = sorted(set(weights) ^ set(source))
    if other:
        reason = f"weights alone: the passes changed what the model is made of ({other[0]}, …)"
        return found, [{"who": "optc", "label": f"{recipe}, weights alone", "reason": reason}]
    alone = Point(
        "optc", recipe, "weights", size.bytes, size.bits_all, size.bits_body,
        evaluator.of_weights(weights), size.formats,
        "dequantized to float32: activations and KV are float",
    )  # fmt: skip
    return [alone, *found], []


def _engine(model: Path, recipe: str, text: Path, calibration: Path, size: Size) -> Point:
    """The point of the whole engine; its bytes are those that the engine maps."""
    with tempfile.TemporaryDirectory() as folder:
        artifact = optc.compile(
            model,
            recipe=recipe,
            output=Path(folder) / "artifact",
            eval_text=text,
            gate=[f"{name}=none" for name in TEXT_GENERATION.gates],
            **_calibration(recipe, calibration),
        )
        report = json.loads((artifact.path / "report.json").read_text())
    gates = {gate["name"]: gate["value"] for gate in report["gates"]}
    held = report["engines"][0]["weight_bytes"]
    return Point(
        "optc", recipe, "engine", held, size.bits_all * held / size.bytes, size.bits_body,
        {name: gates[name] for name in _FIGURES}, size.formats,
        "the engine's gates: its activations and KV, in its own numbers",
    )  # fmt: skip


def _calibration(recipe: str, text: Path) -> dict[str, Any]:
    """The option that gives a recipe its calibration text, if it reads one."""
    reads = any(hasattr(one, "text") for one in load_recipe(recipe).pipeline.passes)
    return {"calibration": text} if reads else {}
