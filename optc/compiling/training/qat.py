"""Quantization-aware training: weights learn to be rounded by a recipe's own quantizer (Jacob et
al., 2018, arXiv:1712.05877; from a rounded start: Chen et al., 2024, arXiv:2407.11062)."""

from __future__ import annotations

from pathlib import Path

import onnx_ir as ir
import torch

from optc.compiling.training.executor import DenseExecutor
from optc.compiling.training.memory import ROUNDED
from optc.compiling.training.session import Outcome, Session, begin, files_read, rounded_of
from optc.compiling.training.settings import read_settings
from optc.compiling.training.student import rounded_student
from optc.compiling.training.weights import FullWeight, RoundedWeight
from optc.ir.functions import DOMAIN, is_op
from optc.ir.quantized_rows import QuantizedPart, QuantizedRows
from optc.system.options.training_options import QatOptions
from optc.system.progress import Progress, no_progress
from optc.system.sources.steady import steady_throughout

_SUFFIX = ".quantized"


def qat(model: str | Path, asked: QatOptions, *, progress: Progress = no_progress) -> Outcome:
    """Train the weights that a recipe rounds, as it rounds them.

    It begins with what the recipe's own rounding gives (GPTQ behind propagated errors, where it has
    them), and the result is never worse than that on the held-out text. Activations and keys and
    values stay float.

    Args: and Raises: as `optc.compiling.training.distill.distill`.
    """
    settings = read_settings(asked, scale_rate=asked.scale_rate)
    with steady_throughout(files_read(model, asked)):
        session = begin("qat", Path(model), asked, settings, progress)
        with session.memory:
            return _qat(session, asked)


def _qat(session: Session, asked: QatOptions) -> Outcome:
    check = session.check(None, ROUNDED)
    student, rounded = rounded_student(session.source, asked, session.progress, check)
    grids = quantized_weights(rounded)
    ours = DenseExecutor(student.model)
    _round(ours, grids)
    checkpoints = session.checkpoints(student.pipeline, {})
    course, seconds = session.train(student, ours, student.source, checkpoints, "--recipe")
    session.write(student, ours, course, rounded_of(ours, grids))
    checkpoints.remove()
    figures = {**session.figures(course), "hugging_face": False, **session.seen(seconds)}
    return Outcome(session.output, figures, (*student.warnings, *session.warnings(course)))


def quantized_weights(model: ir.Model) -> dict[str, QuantizedRows]:
    """The rounded weights of a model behind ``quantize-weights``, by the layers' names."""
    found: dict[str, QuantizedRows] = {}
    for node in model.graph:
        value = node.inputs[2] if is_op(node, "QuantizedMatMul", domain=DOMAIN) else None
        part = None if value is None else value.const_value
        if value is not None and isinstance(part, QuantizedPart):
            found[str(value.name).removesuffix(_SUFFIX)] = part.whole
    return found


def _round(ours: DenseExecutor, grids: dict[str, QuantizedRows]) -> None:
    """Weights of linear layers are rounded, vectors are trained as they are, and so is an embedding
    that shares nothing with the head."""
    done = set()
    for layer, grid in grids.items():
        name = ours.tensor_of(layer)
        rows = torch.from_numpy(ours.tensors[name].rows())
        limits = _limits(grid)
        tile = grid.read(0, grid.rows)
        ours.set_weight(name, RoundedWeight(rows, tile, limits, grid.group_size))
        done.add(name)
    for name, tensor in ours.tensors.items():
        if name not in done and tensor.kind == "vector":
            rows = torch.from_numpy(tensor.rows())
            ours.set_weight(name, FullWeight(rows, trained=True))


def _limits(grid: QuantizedRows) -> tuple[int, int]:
    """Least and greatest code of a grid."""
    if not grid.symmetric:
        return 0, (1 << grid.bits) - 1
    return (-127, 127) if grid.bits == 8 else (-(1 << grid.bits - 1), (1 << grid.bits - 1) - 1)
